package guildfile

import (
	"bytes"
	"encoding/json"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"
)

// plain is what encoding/json would make of v.
func plain(v value) any {
	switch v.kind {
	case isString:
		return v.text
	case isNumber:
		return json.Number(v.text)
	case isTrue:
		return true
	case isFalse:
		return false
	case isArray:
		list := make([]any, 0, len(v.items))
		for _, it := range v.items {
			list = append(list, plain(it))
		}
		return list
	case isObject:
		return plainObject(v.members)
	}
	return nil
}

func plainObject(members []member) map[string]any {
	m := make(map[string]any, len(members))
	for _, x := range members {
		m[x.name] = plain(x.value)
	}
	return m
}

// agree holds the parser against encoding/json: whatever it accepts is JSON and
// means the same, and what it refuses beyond that is refused for a reason that
// it is stricter about.
func agree(t *testing.T, line []byte) {
	t.Helper()
	var p parser
	members, err := p.object(line)
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	var want any
	theirs := d.Decode(&want)
	if theirs == nil {
		if _, err := d.Token(); err != io.EOF {
			theirs = err
			if theirs == nil {
				theirs = io.ErrUnexpectedEOF
			}
		}
	}
	_, isObject := want.(map[string]any)
	switch {
	case err == nil && (theirs != nil || !isObject):
		t.Fatalf("%q is accepted, encoding/json says %v", line, theirs)
	case err == nil:
		if got := plainObject(members); !reflect.DeepEqual(got, want) {
			t.Fatalf("%q\n got %#v\nwant %#v", line, got, want)
		}
	case theirs == nil && isObject:
		for _, stricter := range []string{"twice", "UTF-8", "U+0000", "surrogate", "nested deeper"} {
			if strings.Contains(err.Error(), stricter) {
				return
			}
		}
		t.Fatalf("%q is refused: %v", line, err)
	}
}

// RELIABILITY.md, Input.
func TestParserAgreesWithTheStandardLibrary(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		`{}`, ` { } `, `{"a":1}`, `{"a":-0}`, `{"a":01}`, `{"a":1.}`, `{"a":1.5e+7}`, `{"a":1e}`, `{"a":-}`, `{"a":.5}`,
		`{"a":"b\n\"\\\/\b\f\r\t"}`, `{"a":"\u00e9\ud83e\udd16"}`, `{"a":"\ud83e"}`, `{"a":"\ud83ex"}`, `{"a":"\udd16\ud83e"}`,
		`{"a":"\u12"}`, `{"a":"\x"}`, "{\"a\":\"\t\"}", "{\"a\":\"\x7f\"}", "{\"a\":\"\xc3\x28\"}", "{\"a\":\"\\n\xff\"}",
		`{"a":[1,[2,{"b":null}],true,false]}`, `{"a":[1,]}`, `{"a":1,}`, `{"a" 1}`, `{"a":}`, `{a:1}`, `{"a":nul}`, `{"a":truee}`,
		`{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `[]`, `"a"`, ``, `{`, `{"a`, `{"a":"`, `{"a":"\`, `{}{}`, `{} x`,
		`{"a":` + strings.Repeat("[", 31) + strings.Repeat("]", 31) + `}`,
		`{"a":` + strings.Repeat("[", 50) + strings.Repeat("]", 50) + `}`,
	} {
		agree(t, []byte(s))
	}
}

// FuzzReader feeds lines to the whole reading side: no input may panic, and the
// parser's reading must be encoding/json's.
func FuzzReader(f *testing.F) {
	var demo bytes.Buffer
	if err := Demo(&demo); err != nil {
		f.Fatal(err)
	}
	kinds := make(map[string]int)
	for line := range bytes.Lines(demo.Bytes()) {
		_, kind, _ := bytes.Cut(line, []byte(`"record":"`))
		kind, _, _ = bytes.Cut(kind, []byte(`"`))
		if kinds[string(kind)]++; kinds[string(kind)] <= 3 {
			f.Add(line)
		}
	}
	f.Add([]byte(`{"record":"settings","guild_id":"1","levelling":{"curve":{"base":100}}}`))
	f.Add([]byte(`{"record":"case","reason":"\ud83e\udd16\u0000","number":1e3}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		agree(t, line)
		b := newBatch(nil, time.Unix(1700000000, 0))
		var p parser
		if _, err := b.add(1, &p, line); err == nil && b.records != 1 {
			t.Fatalf("%q is neither read nor refused", line)
		}
	})
}
