package wire

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
)

var errNoURL = errors.New("is not a URL: it must look like https://hooks.example.net/guildhall")

// WrongURL returns an error if raw is not the URL of a webhook receiver, in the same words for the
// API, the command line and the dashboard. The error continues a sentence that begins with the URL.
func WrongURL(raw string) error {
	u, _ := url.Parse(raw)
	switch {
	case strings.ContainsFunc(raw, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '\\' }):
		return errors.New("must not contain white space, control characters or backslashes")
	case u == nil || u.Scheme == "":
		return errNoURL
	case !strings.HasPrefix(raw, "https:") && !strings.HasPrefix(raw, "http:"):
		return errors.New("must start with https://")
	case u.User != nil:
		return errors.New("must not contain credentials")
	case u.Opaque != "" || u.Hostname() == "":
		return errors.New("must name a host")
	case strings.Contains(raw, "#"):
		return errors.New("must not have a fragment")
	case strings.HasSuffix(u.Host, ":") || u.Port() != "" && !isPort(u.Port()):
		return errors.New("must have a port between 1 and 65535, without zeros before it")
	}
	if host, err := idna.Lookup.ToASCII(u.Hostname()); err == nil && host != strings.ToLower(u.Hostname()) {
		return fmt.Errorf("must write the host name as %s", host)
	}
	for _, r := range raw {
		if !strings.ContainsRune(unescaped, r) {
			return fmt.Errorf("must write the character %q as %s", r, url.QueryEscape(string(r)))
		}
	}
	return errNoURL
}

// unescaped are the characters that need no escape in a URL's path.
const unescaped = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._~!$&'()*+,;=:@/?-%[]"

func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0 && text[0] != '0'
}
