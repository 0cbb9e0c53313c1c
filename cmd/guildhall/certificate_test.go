package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"guildhall/internal/base/certificate"
	"guildhall/internal/base/db/dbtest"
)

// serve and doctor name the setting of the file that is wrong: the certificate's or its key's.
func TestTheFileOfACertificateThatIsWrongIsNamed(t *testing.T) {
	t.Parallel()
	dir, url, key := t.TempDir(), dbtest.New(t).URL, someKey(t)
	local := func(name string) certificate.LocalFiles {
		at := filepath.Join(dir, name)
		if err := os.Mkdir(at, 0o755); err != nil {
			t.Fatal(err)
		}
		files, err := certificate.Local(at)
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	one, other, broken := local("one"), local("other"), filepath.Join(dir, "broken")
	if err := os.WriteFile(broken, []byte("-----BEGIN PRIVATE KEY-----\nbm9uZQ==\n-----END PRIVATE KEY-----\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ cert, key, says string }{
		{one.Cert, broken, "GUILDHALL_TLS_KEY: " + broken},
		{one.Cert, dir + "/none", "GUILDHALL_TLS_KEY: open " + dir + "/none"},
		{one.Cert, one.Cert, "GUILDHALL_TLS_KEY: " + one.Cert},
		{broken, one.Key, "GUILDHALL_TLS_CERT: " + broken},
		{dir + "/none", one.Key, "GUILDHALL_TLS_CERT: open " + dir + "/none"},
		{one.Cert, other.Key, "GUILDHALL_TLS_KEY: " + other.Key + " does not belong to the certificate of GUILDHALL_TLS_CERT"},
		{one.Cert, "", "GUILDHALL_TLS_KEY: "},
		{"", one.Key, "GUILDHALL_TLS_CERT: "},
	} {
		for _, command := range []string{"serve", "doctor"} {
			args := []string{
				command, "--database-url", url, "--secret-key", key, "--discord-url", "off",
				"--ops-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0",
			}
			if c.cert != "" {
				args = append(args, "--tls-cert", c.cert)
			}
			if c.key != "" {
				args = append(args, "--tls-key", c.key)
			}
			if r := call(t, "", args...); r.code != 1 || !strings.Contains(r.out+r.err, c.says) {
				t.Errorf("%s with %s and %s says %s%s, want %s", command, c.cert, c.key, r.out, r.err, c.says)
			}
		}
	}
}
