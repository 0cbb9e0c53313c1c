package schema

import (
	"bytes"
	"encoding/json"
	"io"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// Reading a body that is built to be costly stops long before its end. RELIABILITY.md, Input.
func TestParseJSONGivesUpOnCrowds(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"integers":   "[" + strings.Repeat("1,", 32000) + "1]",
		"fractions":  "[" + strings.Repeat("1.0,", 16000) + "1]",
		"objects":    "[" + strings.Repeat("{},", 21000) + "1]",
		"duplicates": "{" + strings.Repeat(`"a":1,`, 10000) + `"b":1}`,
		"nests":      "[" + strings.Repeat(strings.Repeat("[", 20)+strings.Repeat("]", 20)+",", 1500) + "1]",
	} {
		_, problems, ok := Read([]byte(body), 1000, "")
		if ok || len(problems) != 1 || problems[0].Text != "must not hold more than 1000 values" {
			t.Errorf("%s: %v, %d problems", name, ok, len(problems))
		}
	}
	if _, problems, ok := Read([]byte("["+strings.Repeat("1,", 998)+"1]"), 1000, ""); !ok || len(problems) > 0 {
		t.Errorf("1000 values: %v, %v", ok, problems)
	}
}

// FuzzParseJSON checks three promises: Read never panics; a value that Read accepts equals what
// encoding/json reads; and that value contains nothing that Postgres or a JSON reader would refuse
// or change.
func FuzzParseJSON(f *testing.F) {
	for _, s := range []string{
		`{"user_id":"9","delta":1,"reason":"\ud83c\udf89"}`, `{"a":{"b":[1,-2,null,true,"x"]}}`, `{"a":1,"a":2}`, `{"a":"\ud83c"}`,
		`{"a":"\\ud83c"}`, `{"a":"\\\ud83c\udf89"}`, `{"a":"\u0000"}`, `{"a":1e400}`, "\ufeff{}", `[[[[]]]]`, `{"a":`, `"\u12`,
		"{\"a\":\"\xff\"}", ` 1 `, `{}{}`,
		strings.Repeat("[", 40) + strings.Repeat("]", 40),
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, problems, ok := Read(body, 1000, "")
		for _, p := range problems {
			if !utf8.ValidString(p.String()) || strings.ContainsAny(p.String(), "\x00\n\r") {
				t.Fatalf("%q: the message %q cannot be shown", body, p)
			}
		}
		if len(problems) > 0 {
			return
		}
		if !ok {
			t.Fatalf("%q was refused without a reason", body)
		}
		dec := json.NewDecoder(bytes.NewReader(body))
		dec.UseNumber()
		var want any
		if err := dec.Decode(&want); err != nil {
			t.Fatalf("%q was let through, but: %v", body, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%q was read as %#v, not %#v", body, got, want)
		}
		clean(t, body, got, 0)
	})
}

func clean(t *testing.T, body []byte, v any, depth int) {
	t.Helper()
	if depth > maxDepth+1 {
		t.Fatalf("%q nests deeper than %d", body, maxDepth)
	}
	switch v := v.(type) {
	case map[string]any:
		for _, member := range v {
			clean(t, body, member, depth+1)
		}
	case []any:
		for _, item := range v {
			clean(t, body, item, depth+1)
		}
	case string:
		if strings.ContainsRune(v, 0) || (v != "" && Blank(v)) {
			t.Fatalf("%q holds the string %q", body, v)
		}
		if strings.ContainsRune(v, utf8.RuneError) && !bytes.Contains(body, []byte("\ufffd")) &&
			!bytes.Contains(bytes.ToLower(body), []byte(`\ufffd`)) {
			t.Fatalf("%q was changed to %q", body, v)
		}
	case json.Number:
		if strings.ContainsAny(v.String(), ".eE") {
			t.Fatalf("%q holds the number %s", body, v)
		}
	}
}

// agree compares Read with encoding/json: text that Read accepts is JSON with the same meaning, and
// text that only Read refuses breaks one of Read's stricter rules.
func agree(t *testing.T, text string) {
	t.Helper()
	got, problems, ok := Read([]byte(text), 1000, "")
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var want any
	theirs := d.Decode(&want)
	if theirs == nil {
		if _, err := d.Token(); err != io.EOF {
			theirs = io.ErrUnexpectedEOF
		}
	}
	switch {
	case ok && len(problems) == 0 && theirs != nil:
		t.Fatalf("%q is accepted, encoding/json says %v", text, theirs)
	case ok && len(problems) == 0:
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%q\n got %#v\nwant %#v", text, got, want)
		}
	case theirs == nil:
		for _, stricter := range []string{"given once", "UTF-8", "U+0000", "surrogate", "nest deeper", "integer", "not blank"} {
			if strings.Contains(problems[0].Text, stricter) {
				return
			}
		}
		t.Fatalf("%q is refused: %v", text, problems)
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
		agree(t, s)
	}
}
