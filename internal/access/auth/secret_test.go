package auth

import (
	"crypto/sha256"
	"strings"
	"testing"
)

func TestRecognise(t *testing.T) {
	t.Parallel()
	for _, env := range []string{"live", "test"} {
		for range 200 { // enough that some secrets contain underscores
			token := mint(tokenBrand, env)
			hash, ok := recognise(token, env)
			if !ok || hash != sha256.Sum256([]byte(token)) {
				t.Fatalf("a token of %s is not recognised", env)
			}
			if p := preview(token, env); p != "svc_"+env+"_..."+token[len(token)-4:] {
				t.Fatalf("preview %q", p)
			}
		}
	}
	secret := strings.Repeat("a", 43)
	for _, bad := range []string{
		"", "svc", "svc_", "svc_test_", "svc_test_" + secret[1:], "svc_test_" + secret + "a", "svc_live_" + secret,
		"SVC_test_" + secret, "svc_Test_" + secret, "svc-test-" + secret, "abc_test_" + secret, " svc_test_" + secret[1:],
		"svc_test_" + secret[1:] + " ", "svc_test_" + secret[1:] + "\n", "svc_test_" + secret[1:] + "\x00", "svc_test_" + secret[1:] + "=",
		"svc_test_" + secret[1:] + "+", "svc_test_" + secret[1:] + "/", "svc_test_" + secret[2:] + "é", "svc__test" + secret,
		strings.Repeat("svc_test_", 2000),
	} {
		if _, ok := recognise(bad, "test"); ok {
			t.Errorf("%q has the form of a token", bad)
		}
	}
	if _, ok := recognise("svc_test_"+strings.Repeat("_", 43), "test"); !ok {
		t.Error("a secret may hold underscores")
	}
}

func FuzzRecognise(f *testing.F) {
	f.Add(mint(tokenBrand, "test"))
	f.Add("svc_test_" + strings.Repeat("_", 43))
	f.Add("svc_live_" + strings.Repeat("-", 43))
	f.Add("svc_test")
	f.Add("svc_test_\x00")
	f.Fuzz(func(t *testing.T, s string) {
		hash, ok := recognise(s, "test")
		// A simple second implementation: split at the first two underscores, then check the parts.
		parts := strings.SplitN(s, "_", 3)
		want := len(parts) == 3 && parts[0] == "svc" && parts[1] == "test" && len(parts[2]) == 43 &&
			strings.Trim(parts[2], "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") == ""
		if ok != want {
			t.Fatalf("%q: recognised %v, want %v", s, ok, want)
		}
		if ok && hash != sha256.Sum256([]byte(s)) {
			t.Fatalf("%q has a wrong digest", s)
		}
	})
}
