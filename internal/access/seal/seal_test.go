package seal_test

import (
	"bytes"
	"errors"
	"testing"

	"guildhall/internal/access/seal"
)

func box(t *testing.T, fill byte) *seal.Box {
	t.Helper()
	b, err := seal.New(bytes.Repeat([]byte{fill}, seal.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestOpenReturnsWhatWasSealed(t *testing.T) {
	t.Parallel()
	b := box(t, 1)
	for _, plain := range [][]byte{nil, {0}, []byte("whsec_abc"), bytes.Repeat([]byte("x"), 70_000)} {
		got, err := b.Open(b.Seal(plain, "endpoint-1"), "endpoint-1")
		if err != nil || !bytes.Equal(got, plain) {
			t.Errorf("Open(Seal(%d bytes)) = %d bytes, %v", len(plain), len(got), err)
		}
	}
}

func TestSealNeverRepeatsItself(t *testing.T) {
	t.Parallel()
	b := box(t, 1)
	if bytes.Equal(b.Seal([]byte("same"), "a"), b.Seal([]byte("same"), "a")) {
		t.Error("two boxes of the same text are equal")
	}
	if bytes.Contains(b.Seal([]byte("plain text"), "a"), []byte("plain")) {
		t.Error("the sealed bytes show the plain text")
	}
}

func TestOpenRefusesEverythingElse(t *testing.T) {
	t.Parallel()
	b := box(t, 1)
	sealed := b.Seal([]byte("whsec_abc"), "endpoint-1")

	refused := func(name string, b *seal.Box, sealed []byte, boundTo string) {
		t.Helper()
		if _, err := b.Open(sealed, boundTo); !errors.Is(err, seal.ErrUnreadable) {
			t.Errorf("%s: got %v, want ErrUnreadable", name, err)
		}
	}
	refused("another key", box(t, 2), sealed, "endpoint-1")
	refused("another place", b, sealed, "endpoint-2")
	refused("nothing", b, nil, "endpoint-1")
	refused("the version alone", b, sealed[:1], "endpoint-1")
	refused("cut short", b, sealed[:len(sealed)-1], "endpoint-1")
	for bit := range len(sealed) * 8 {
		flipped := bytes.Clone(sealed)
		flipped[bit/8] ^= 1 << (bit % 8)
		refused("a flipped bit", b, flipped, "endpoint-1")
	}
}

func TestNewRefusesAKeyOfAnotherLength(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 16, 31, 33, 64} {
		if _, err := seal.New(make([]byte, n)); err == nil {
			t.Errorf("New took a key of %d bytes", n)
		}
	}
}

func TestTheFirstKeySealsAndAllOpen(t *testing.T) {
	t.Parallel()
	older, newer := bytes.Repeat([]byte{1}, seal.KeySize), bytes.Repeat([]byte{2}, seal.KeySize)
	both, err := seal.New(newer, older)
	if err != nil {
		t.Fatal(err)
	}
	was := box(t, 1).Seal([]byte("secret"), "a")
	if plain, err := both.Open(was, "a"); err != nil || string(plain) != "secret" {
		t.Errorf("what the older key sealed opens as %q, %v", plain, err)
	}
	if _, err := box(t, 1).Open(both.Seal([]byte("secret"), "a"), "a"); err == nil {
		t.Error("the older key seals")
	}
	fresh, changed, err := both.Reseal(was, "a")
	if err != nil || !changed {
		t.Fatalf("reseal: %v, %v", changed, err)
	}
	if plain, err := box(t, 2).Open(fresh, "a"); err != nil || string(plain) != "secret" {
		t.Errorf("resealed it opens as %q, %v", plain, err)
	}
	if again, changed, err := both.Reseal(fresh, "a"); err != nil || changed || !bytes.Equal(again, fresh) {
		t.Errorf("resealed twice: %v, %v", changed, err)
	}
	if _, _, err := both.Reseal(box(t, 3).Seal(nil, "a"), "a"); !errors.Is(err, seal.ErrUnreadable) {
		t.Errorf("an unknown key's: %v", err)
	}
	if _, err := seal.New(); err == nil {
		t.Error("a box without a key")
	}
}
