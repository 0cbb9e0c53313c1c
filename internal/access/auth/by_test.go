package auth

import "testing"

func TestWhoActsIsSaidTheSameWayEverywhere(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ id, typ, note, origin string }{
		{"0197-a", "api", "api:token=0197-a", `{"type":"api","token_id":"0197-a","key_id":null}`},
		{"bk_0197-b", "bot", "bot:key=bk_0197-b", `{"type":"bot","token_id":null,"key_id":"bk_0197-b"}`},
		{"", "system", "system", `{"type":"system","token_id":null,"key_id":null}`},
	} {
		stored := &c.id
		if c.id == "" {
			stored = nil
		}
		by := Stored("7", stored)
		if by != (By{GuildID: "7", ID: c.id}) || by.Type() != c.typ || by.Note() != c.note || by.Origin() != c.origin {
			t.Errorf("%q: %+v is %s, noted %s, shown %s", c.id, by, by.Type(), by.Note(), by.Origin())
		}
	}
}
