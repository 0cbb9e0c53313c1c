package api

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"

	"github.com/labstack/echo/v4"
)

const contentType = "application/json"

// readBody reads the body of a write and checks size, media type, the syntax of the idempotency
// key, and that there is no query. Its refusals are not stored under the key. For reads it ignores
// the body and the key.
func readBody(large *largeBodyPermits) middleware {
	return func(next handler) handler {
		return func(rs *reqState) error {
			if !rs.op.ReadOnly {
				if err := parseHead(rs, large); err != nil {
					return err
				}
			}
			return next(rs)
		}
	}
}

func parseHead(rs *reqState, large *largeBodyPermits) (err error) {
	req := rs.Request()
	if rs.body, err = readAll(req, rs.op.MaxBody, func() (func(error), error) { return large.acquire(rs) }); err != nil {
		return err
	}
	if len(rs.body) > 0 && !isJSON(req.Header) {
		return errMedia
	}
	if !rs.op.BodyMust && string(bytes.TrimSpace(rs.body)) == "null" { // what some clients send for no body
		rs.body = nil
	}
	if !rs.op.LongPoll {
		if rs.key, err = idempotencyKey(req.Header); err != nil {
			return err
		}
	}
	if req.URL.RawQuery != "" || req.URL.ForceQuery {
		return invalid("query: a write takes no query parameters")
	}
	req.Body = http.NoBody // the body has been read
	return nil
}

// readAll reads a body of at most `most` bytes. It calls enter before it reads more bytes than an
// ordinary body has, and the returned leave afterwards.
func readAll(req *http.Request, most int64, enter func() (leave func(error), err error)) ([]byte, error) {
	if req.ContentLength > most {
		return nil, errLargerThan(most)
	}
	for _, e := range req.Header.Values("Content-Encoding") {
		if e != "" && !strings.EqualFold(e, "identity") {
			return nil, errMedia
		}
	}
	if req.Body == nil || req.Body == http.NoBody {
		return nil, nil
	}
	var body []byte
	var err error
	if req.ContentLength <= smallBody {
		body, err = io.ReadAll(io.LimitReader(req.Body, min(most, smallBody)+1))
	}
	if err == nil && most > smallBody && (int64(len(body)) > smallBody || req.ContentLength > smallBody) {
		leave, full := enter()
		if full != nil {
			return nil, full
		}
		var rest []byte
		rest, err = io.ReadAll(io.LimitReader(req.Body, most+1-int64(len(body))))
		leave(err)
		body = append(body, rest...)
	}
	switch {
	case int64(len(body)) > most:
		return nil, errLargerThan(most)
	case errors.Is(err, os.ErrDeadlineExceeded) && len(body) > 0:
		return nil, invalid("body: it has not arrived in time; more than %d bytes have %s", smallBody, largeBodyTime).Because(err)
	case err != nil:
		return nil, invalid("body: it ended before its announced length, or its framing is broken").Because(err)
	}
	return body, nil
}

func errLargerThan(most int64) error {
	return errTooLarge.With("The body must not be larger than %d bytes.", most)
}

// isJSON reports whether there is one Content-Type and it is JSON in UTF-8.
func isJSON(h http.Header) bool {
	values := h.Values(echo.HeaderContentType)
	if len(values) != 1 {
		return false
	}
	media, params, err := mime.ParseMediaType(values[0])
	if err != nil || media != contentType {
		return false
	}
	for name, value := range params {
		if name != "charset" || !strings.EqualFold(value, "utf-8") {
			return false
		}
	}
	return true
}

// idempotencyKey returns the key, or "" if none was sent.
func idempotencyKey(h http.Header) (string, error) {
	values := h.Values("Idempotency-Key")
	if len(values) == 0 {
		return "", nil
	}
	key := values[0]
	if len(values) > 1 || len(key) < 1 || len(key) > 128 {
		return "", errKey
	}
	for i := range len(key) {
		if key[i] < 0x21 || key[i] > 0x7e {
			return "", errKey
		}
	}
	return key, nil
}

var errKey = invalid("header Idempotency-Key: must be sent once, with 1 to 128 printable ASCII characters and no spaces")
