package dashboard

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"mime"
	"net/http"
	"path"
	"strings"
	"sync"

	"guildhall/internal/base/fault"
)

// asset is a file that browsers may cache, uncompressed and compressed.
type asset struct {
	body, small []byte
	header      http.Header
}

func readAssets() (map[string]asset, error) {
	entries, err := files.ReadDir("assets")
	if err != nil {
		return nil, fault.Wrap(err, "dashboard")
	}
	assets := map[string]asset{}
	for _, e := range entries {
		body, err := files.ReadFile("assets/" + e.Name())
		if err != nil {
			return nil, fault.Wrap(err, "dashboard")
		}
		sum := sha256.Sum256(body)
		assets[e.Name()] = asset{body, compressed(body), http.Header{
			"Content-Type":  {mime.TypeByExtension(path.Ext(e.Name()))},
			"Cache-Control": {"private, max-age=300"},
			"Etag":          {`W/"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`},
			"Vary":          {"Accept-Encoding"},
		}}
	}
	return assets, nil
}

// asset responds with a file, or with 304 if the browser has the file already.
func (c *call) asset(a asset) reply {
	c.route = "assets"
	for tag := range strings.SplitSeq(c.r.Header.Get("If-None-Match"), ",") {
		if tag = strings.TrimSpace(tag); tag == "*" || tag == a.header.Get("Etag") {
			return reply{status: http.StatusNotModified, header: a.header}
		}
	}
	return reply{body: a.body, small: a.small, header: a.header}
}

// worthwhile is the size in bytes from which a body is compressed: a smaller body fits into one
// packet anyway.
const worthwhile = 1400

// gzipWriters reuses writers: a new writer allocates 1.2 MB.
var gzipWriters = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is valid
	return w
}}

// compressed returns a body as gzip; nil if compression is not worthwhile.
func compressed(body []byte) []byte {
	if len(body) < worthwhile {
		return nil
	}
	var b bytes.Buffer
	w, _ := gzipWriters.Get().(*gzip.Writer)
	defer gzipWriters.Put(w)
	w.Reset(&b)
	_, _ = w.Write(body) // writes into memory cannot fail
	_ = w.Close()
	return b.Bytes()
}

// takesGzip reports whether the browser reads gzip.
func (c *call) takesGzip() bool {
	for coding := range strings.SplitSeq(c.r.Header.Get("Accept-Encoding"), ",") {
		name, weight, _ := strings.Cut(strings.ReplaceAll(coding, " ", ""), ";")
		if strings.EqualFold(name, "gzip") && (weight == "" || strings.Trim(weight, "qQ=0.") != "") {
			return true
		}
	}
	return false
}

// secretPages are pages that show a secret together with text that a person has typed. They are not
// compressed, because the compressed length would reveal something about the secret.
var secretPages = map[string]bool{"token-made": true, "webhook-secret": true}

// shrink compresses the body of a reply if the browser and the page allow it.
func (c *call) shrink(out *reply, h http.Header) {
	if secretPages[out.page] || len(out.body) < worthwhile {
		return
	}
	h.Set("Vary", "Accept-Encoding")
	if !c.takesGzip() {
		return
	}
	if out.small == nil {
		out.small = compressed(out.body)
	}
	h.Set("Content-Encoding", "gzip")
	out.body = out.small
}
