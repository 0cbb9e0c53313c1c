package db

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// unneeded lists parameters of libpq and of other languages' drivers that hosting providers put
// into URLs. lib/pq would send them to the server as settings, which refuses the connection. The
// program works without them.
var unneeded = []string{
	"channel_binding", "connection_limit", "gssdelegation", "gssencmode", "gsslib", "keepalives", "keepalives_count", "keepalives_idle",
	"keepalives_interval", "pgbouncer", "pool_max_conn_idle_time", "pool_max_conn_lifetime", "pool_max_conns", "pool_min_conns",
	"pool_mode", "pool_size", "pool_timeout", "prepareThreshold", "prepared_statements", "reconnect", "socketTimeout", "socket_timeout",
	"sslcertmode", "sslcompression", "statement_cache_capacity", "statement_cache_mode", "statement_cache_size", "supa",
	"tcp_user_timeout", "uselibpqcompat", "workaround",
}

// meaningful lists parameters of other drivers that change which rows are visible or who is
// trusted, each with the equivalent for this program. A URL with one of them is refused.
var meaningful = map[string]string{
	"currentSchema": "search_path",
	"schema":        "search_path",
	"ssl":           "sslmode",
	"sslaccept":     "sslmode and sslrootcert",
	"sslidentity":   "sslcert and sslkey",
	"sslfactory":    "sslmode and sslrootcert",
	"require_auth":  "sslmode=verify-full",
}

// takeForeign deletes the unneeded parameters from q and returns their names. It returns an error
// for a parameter that changes the meaning of the connection.
func takeForeign(q url.Values) (left []string, err error) {
	for name, ours := range meaningful {
		if q.Has(name) {
			return nil, fmt.Errorf("the database URL has the parameter %s, which another driver knows: say it with %s", name, ours)
		}
	}
	for _, name := range unneeded {
		if q.Has(name) {
			left = append(left, name)
			q.Del(name)
		}
	}
	return left, nil
}

// Unneeded returns a sentence that names the ignored parameters of a database URL, or "" if there
// are none.
func Unneeded(raw string) string {
	without, _, _ := splitHosts(raw) // net/url cannot parse a list of hosts
	u, err := url.Parse(without)
	if err != nil {
		return ""
	}
	left, err := takeForeign(u.Query())
	if err != nil || len(left) == 0 {
		return ""
	}
	text := "of the database URL " + strings.Join(left, ", ") + " is left out: the driver does not know it and does without"
	if slices.Contains(left, "pgbouncer") {
		text += "; behind a pooler that shares connections by transaction, say binary_parameters=yes"
	}
	return text
}

// errURL shows the form of a database URL.
var errURL = errors.New("the database URL must have the form postgres://user@host:port/database?sslmode=…, with :password after the user")

// mistaken returns an error that says why raw is not a valid database URL, or that it would be read
// in another way than was meant. It repeats nothing of the URL, which may contain a password.
func mistaken(raw string) error {
	var what string
	switch {
	case strings.ContainsAny(raw, "\r\n"):
		what = "it holds a line break"
	case strings.TrimSpace(raw) != raw:
		what = "it begins or ends with a space"
	case strings.HasPrefix(raw, `"`) || strings.HasPrefix(raw, "'"):
		what = "it begins with a quote: whatever reads the setting takes quotes as a part of it"
	case strings.Contains(raw, "${") || strings.Contains(raw, "$("):
		what = "it holds ${…} or $(…), which nothing has replaced"
	case strings.HasPrefix(raw, "jdbc:"):
		what = "without the jdbc: in front"
	case strings.HasPrefix(raw, "postgres://") || strings.HasPrefix(raw, "postgresql://"):
		what = "in a user, a password or a name the characters / # ? @ : % are percent-encoded: / is %2F, # is %23, ? is %3F, @ is %40, : is %3A, % is %25"
	default:
		return errURL
	}
	return fmt.Errorf("%w; %s", errURL, what)
}
