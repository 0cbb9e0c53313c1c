package cases

import (
	"maps"
	"slices"
	"testing"
	"time"

	"guildhall/internal/base/metadata"
	"guildhall/internal/base/wire"
)

func TestApply(t *testing.T) {
	t.Parallel()
	text := func(s string) *string { return &s }
	at := func(ms int64) *wire.Time { t := wire.At(time.UnixMilli(ms).UTC()); return &t }
	exact := wire.At(at(7).Time.Add(400 * time.Microsecond))
	elsewhere := wire.At(at(7).Time.In(time.FixedZone("", 3600)))
	for _, c := range []struct {
		name    string
		have    row
		patch   patch
		want    row
		changed []string
	}{
		{"nothing wished for", row{Reason: "a", ExpiresAt: at(7)}, patch{}, row{Reason: "a", ExpiresAt: at(7)}, nil},
		{"a new reason", row{Reason: "a", ExpiresAt: at(7)}, patch{Reason: text("b")}, row{Reason: "b", ExpiresAt: at(7)}, []string{"reason"}},
		{"the same reason", row{Reason: "a"}, patch{Reason: text("a")}, row{Reason: "a"}, nil},
		{"a first expiry", row{}, patch{Expiry: true, ExpiresAt: at(7)}, row{ExpiresAt: at(7)}, []string{"expires_at"}},
		{"another expiry", row{ExpiresAt: at(8)}, patch{Expiry: true, ExpiresAt: at(7)}, row{ExpiresAt: at(7)}, []string{"expires_at"}},
		{"an expiry cleared", row{ExpiresAt: at(8)}, patch{Expiry: true}, row{}, []string{"expires_at"}},
		{"no expiry cleared", row{}, patch{Expiry: true}, row{}, nil},
		{"the same instant, elsewhere", row{ExpiresAt: at(7)}, patch{Expiry: true, ExpiresAt: &elsewhere}, row{ExpiresAt: at(7)}, nil},
		{"the instant that is shown", row{ExpiresAt: &exact}, patch{Expiry: true, ExpiresAt: at(7)}, row{ExpiresAt: &exact}, nil},
		{
			"both",
			row{},
			patch{Reason: text("b"), Expiry: true, ExpiresAt: at(1)},
			row{Reason: "b", ExpiresAt: at(1)},
			[]string{"reason", "expires_at"},
		},
		{"a value", row{}, patch{Metadata: metadata.Change{"a": text("b")}}, row{Metadata: metadata.Values{"a": "b"}}, []string{"metadata"}},
		{
			"the value that is there",
			row{Metadata: metadata.Values{"a": "b"}},
			patch{Metadata: metadata.Change{"a": text("b")}},
			row{Metadata: metadata.Values{"a": "b"}},
			nil,
		},
		{"a value taken away", row{Metadata: metadata.Values{"a": "b"}}, patch{Metadata: metadata.Change{"a": nil}}, row{}, []string{"metadata"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, changed, err := c.patch.apply(c.have)
			if err != nil {
				t.Fatal(err)
			}
			if got.Reason != c.want.Reason || !same(got.ExpiresAt, c.want.ExpiresAt) || !maps.Equal(got.Metadata, c.want.Metadata) ||
				!slices.Equal(changed, c.changed) {
				t.Errorf("got %q, %v, %v; want %q, %v, %v", got.Reason, got.ExpiresAt, changed, c.want.Reason, c.want.ExpiresAt, c.changed)
			}
		})
	}
}
