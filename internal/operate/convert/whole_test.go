package convert

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"guildhall/internal/base/schema"
	"guildhall/internal/contract"
)

// leaves calls do with the path of every value of a document that is neither an object nor an
// array.
func leaves(v any, path []string, do func(path []string)) {
	switch v := v.(type) {
	case map[string]any:
		for name, m := range v {
			leaves(m, append(slices.Clip(path), name), do)
		}
	case []any:
		for _, m := range v {
			leaves(m, append(slices.Clip(path), "#"), do)
		}
	default:
		do(path)
	}
}

// told reports whether a table or a report names a path.
func told(f *format, r *Report, path []string) bool {
	for _, root := range f.roots {
		p, dropped := root, root.dropped()
		shown := ""
		for _, word := range path {
			shown += "/" + cond(word == "#", "*", word)
			for unknown := range r.Unknown {
				if strings.HasSuffix(shown, unknown[strings.LastIndexByte(unknown, '/'):]) {
					return true
				}
			}
			next := p.member(word)
			if word == "#" && p != nil {
				next = p.index
			}
			if p = next; p == nil {
				break
			}
			dropped = dropped || p.dropped()
		}
		if dropped || p.mapped() {
			return true
		}
	}
	return false
}

func TestNoMemberOfAFixtureIsForgotten(t *testing.T) {
	t.Parallel()
	for _, c := range fixtures(t) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, name := range c.readAlone() {
				text := readFixture(t, name)
				o := c.o
				o.Guild = c.guild(t)
				r := of(t, o, name, text)
				if r.err != nil {
					t.Fatal(r.err)
				}
				n := 0
				for _, doc := range documents(t, text) {
					leaves(doc, nil, func(path []string) {
						n++
						if !told(formatNamed(o.From), r.report, path) {
							t.Errorf("%s: nothing is said of /%s", name, strings.Join(path, "/"))
						}
					})
				}
				if n < 4 {
					t.Errorf("%s has %d leaves", name, n)
				}
			}
		})
	}
}

// readAlone returns the fixture's files of JSON that convert without the others, and whose
// members stand in the table of their format: what json maps follows from the call, and a
// transcript of tickets-bot needs data.json.
func (f fixture) readAlone() []string {
	if f.o.From == "json" || f.o.From == "tickets-bot" {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(f.files), func(name string) bool { return !strings.HasPrefix(filepath.Ext(name), ".json") })
}

// documents returns the JSON documents of a file.
func documents(t testing.TB, text string) (all []any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(strings.TrimPrefix(text, "\ufeff")))
	d.UseNumber()
	for d.More() {
		var doc any
		if err := d.Decode(&doc); err != nil {
			t.Fatal(err)
		}
		all = append(all, doc)
	}
	return all
}

func readFixture(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func wordAfter(s, mark string) string {
	_, rest, _ := strings.Cut(s, mark)
	word, _, _ := strings.Cut(rest, `"`)
	return word
}

// An unknown member is added to each object of each fixture in turn. The report always names it: as
// unknown, or below a path without a place in a guild file.
func TestAMemberThatAppearsIsNeverPassedOverInSilence(t *testing.T) {
	t.Parallel()
	for _, c := range fixtures(t) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := c.o
			o.Guild = c.guild(t)
			for _, name := range c.readAlone() {
				docs := documents(t, readFixture(t, name))
				converts := func() result {
					var text bytes.Buffer
					for _, doc := range docs {
						if err := json.NewEncoder(&text).Encode(doc); err != nil {
							t.Fatal(err)
						}
					}
					return of(t, o, name, text.String())
				}
				before := counted(converts())
				each := func(path []string, m map[string]any) {
					if ofAnother(path, m) {
						return
					}
					m["zz_new"] = map[string]any{"deep": []int{1}}
					r := converts()
					delete(m, "zz_new")
					switch {
					case r.err != nil: // records belong here, and the new member is not a valid record
						if !strings.Contains(r.err.Error(), "zz_new") {
							t.Errorf("%s: /%s: %v", name, strings.Join(path, "/"), r.err)
						}
					case counted(r) != before+1 && !below(formatNamed(o.From), path):
						t.Errorf("%s: a new member of /%s is in no list", name, strings.Join(path, "/"))
					}
				}
				for _, doc := range docs {
					objects(doc, nil, each)
				}
			}
		})
	}
}

// ofAnother reports whether an object of a fixture belongs to another guild.
func ofAnother(path []string, m map[string]any) bool {
	for _, guild := range []string{"1", "500000000000000099"} {
		below := len(path) > 1 && slices.Contains([]string{"GUILD", "MEMBER", "MODLOGS"}, path[1]) && slices.Contains(path, guild)
		if below || m["guildId"] == guild || m["guildID"] == guild {
			return true
		}
	}
	return false
}

// objects calls do with every object of a document.
func objects(v any, path []string, do func(path []string, m map[string]any)) {
	switch v := v.(type) {
	case map[string]any:
		for name, m := range v {
			objects(m, append(slices.Clip(path), name), do)
		}
		do(path, v)
	case []any:
		for _, m := range v {
			objects(m, append(slices.Clip(path), "#"), do)
		}
	}
}

// below reports whether everything below a path has no place in a guild file, or is grouped by
// guild, where the new member counts as another guild.
func below(f *format, path []string) bool {
	p := f.roots[0]
	for _, word := range path {
		next := p.member(word)
		if word == "#" {
			next = p.index
		}
		if p = next; p == nil || p.dropped() && !p.interior {
			return true
		}
	}
	return p.key == "guild"
}

func counted(r result) (n int64) {
	for _, c := range r.report.Unknown {
		n += c
	}
	for _, c := range r.report.NoPlace {
		n += c
	}
	return n
}

// check validates the written lines with the schemas, as an import does.
func check(t testing.TB, out string) {
	t.Helper()
	names := map[string]string{
		"guild": "GuildFileGuild", "settings": "GuildFileSettings", "wallet": "GuildFileWallet", "level": "GuildFileLevel",
		"case": "GuildFileCase", "member": "GuildFileMember",
		"ticket": "GuildFileTicket", "ticket_message": "GuildFileTicketMessage", "giveaway": "GuildFileGiveaway",
	}
	for line := range strings.Lines(out) {
		v, found, ok := schema.Read([]byte(line), 1000, "")
		if !ok || len(found) > 0 {
			t.Fatalf("%s: %v", line, found)
		}
		name := names[v.(map[string]any)["record"].(string)]
		if found := contract.Checker(name)(v, nil); len(found) > 0 {
			t.Fatalf("%s: %v", line, found)
		}
	}
}

// sound fails the test unless a conversion of arbitrary bytes ends with valid records or with an
// error that has a place.
func sound(t testing.TB, what string, r result, file string) {
	t.Helper()
	if r.err == nil {
		check(t, r.out)
		return
	}
	if _, ok := errors.AsType[*UsageError](r.err); ok {
		return // the guild is no longer named
	}
	e, ok := errors.AsType[*Error](r.err)
	if !ok || !strings.Contains(e.File, file) || strings.Contains(e.Text, "our mistake") || strings.ContainsAny(e.Error(), "\n\x00") {
		t.Fatalf("%s: the error is %v", what, r.err)
	}
	if strings.Contains(r.out, "\n") && !strings.HasSuffix(r.out, `{"record":"convert_failed"}`+"\n") {
		t.Fatalf("%s: what went out ends with %q", what, r.out)
	}
}

// RELIABILITY.md, Input.
func TestAFixtureThatIsCutAnywhereIsAnErrorOrWhole(t *testing.T) {
	t.Parallel()
	for _, c := range fixtures(t) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, name := range c.files {
				cutAnywhere(t, c, name)
			}
		})
	}
}

// cutAnywhere converts a fixture with one of its files cut at every byte.
func cutAnywhere(t *testing.T, c fixture, name string) {
	t.Helper()
	o := c.o
	o.Guild = c.guild(t)
	whole, text := 0, readFixture(t, name)
	f := filled(t, text)
	var beside []*Input
	for _, other := range c.files {
		if other != name {
			beside = append(beside, &Input{Name: other, file: filled(t, readFixture(t, other))})
		}
	}
	for n := len(text) - 1; n >= 0; n-- {
		if err := f.Truncate(int64(n)); err != nil {
			t.Fatal(err)
		}
		r := read(t, o, name, f, beside...)
		sound(t, fmt.Sprintf("%s, %d bytes", name, n), r, name)
		if r.err != nil {
			continue
		}
		whole++
		if strings.HasSuffix(name, ".json") && strings.TrimSpace(text[n:]) != "" {
			t.Fatalf("%s: %d of %d bytes were taken for the whole", name, n, len(text))
		}
	}
	if whole > len(text)/2 {
		t.Errorf("%s: %d of %d cuts were taken for the whole", name, whole, len(text))
	}
}

// filled returns a file with the given content.
func filled(t testing.TB, text string) *os.File {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "*")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	return f
}

// read converts an open file under a name, behind other files.
func read(t testing.TB, o Options, name string, f *os.File, others ...*Input) result {
	t.Helper()
	o.At = june
	var out bytes.Buffer
	var report *Report
	err := Run(t.Context(), o, append(slices.Clip(others), &Input{Name: name, file: f}), &out, nil, noted(&report))
	return result{out.String(), "", report, err}
}

// FuzzReaders checks that every reader, for any input, ends with valid records or with an error
// that has a place, and never panics. RELIABILITY.md, Input.
func FuzzReaders(f *testing.F) {
	all := fixtures(f)
	for _, from := range []string{"amari", "polaris", "tatsu"} {
		all = append(all, fixture{o: Options{From: from}})
		f.Add(len(all)-1, `{"data":[{"id":"`+ada+`","exp":1,"level":1}],"users":{"`+ada+
			`":{"xp":1}},"settings":{"curve":{"1":2}},"rankings":[{"user_id":"`+ada+`","score":1}]}`+from)
	}
	for i, c := range all {
		for _, name := range c.files {
			f.Add(i, readFixture(f, name))
		}
		for _, text := range packed[c.o.From] {
			f.Add(i, text)
		}
	}
	f.Add(len(all)-2, "ID,Total XP\n"+ada+",1\n")
	f.Add(2, "\"a\";\"b\"\n\"1,2\";\n")
	f.Fuzz(func(t *testing.T, which int, text string) {
		o := all[uint(which)%uint(len(all))].o
		o.Guild = "500000000000000001"
		if o.From != "csv" && slices.Contains(formatNamed(o.From).flags, "source-guild") {
			o.SourceGuild = wordAfter(text, `50000000000`)
			o.SourceGuild = cond(len(o.SourceGuild) == 7 && digits(o.SourceGuild), "50000000000"+o.SourceGuild, "")
		}
		sound(t, o.From, read(t, o, "a.file", filled(t, text)), "a.file")
		if o.From == "discord-tickets" || o.From == "tickets-bot" {
			sound(t, o.From+", packed", read(t, o, "a.file", filled(t, repacked(t, o, text))), "a.file")
		}
	})
}

// packed lists texts that formats read out of a zip or out of base64, which a fuzzer cannot
// change where they are packed: those of discord-tickets are settings.json and tickets.jsonl,
// those of tickets-bot data.json and a transcript, with a zero byte between them.
var packed = map[string][]string{
	"discord-tickets": {`{"categories":[{"id":3,"name":"Help","questions":[{"id":"q","label":"Why"}]}]}` + "\x00" +
		strings.TrimSuffix(oneTicket, "}") + `,"categoryId":3,"priority":"LOW",` +
		`"questionAnswers":[{"questionId":"q","value":"So"}],"archivedMessages":[` +
		`{"id":"1201000000000000002","authorId":"` + ada + `","createdAt":"2024-01-28T02:00:00Z","deleted":true,"content":` +
		`"{\"content\":\"Hello\",\"attachments\":[{\"url\":\"https://a.example/b\"}],\"embeds\":[{\"data\":{\"title\":\"A\"}}]}"}]}`},
	"tickets-bot": {`{"guild_id":500000000000000001,` +
		`"tickets":[{"id":17,"user_id":` + ada + `,"open":false,"open_time":"2024-01-01T00:00:00Z",` +
		`"panel_id":4,"has_transcript":true}],"panels":[{"panel_id":4,"title":"Help"}],"service_ratings":[{"ticket_id":17,"data":5}],` +
		`"exit_survey_responses":[{"ticket_id":17,"data":{"question_id":9,"response":"Good"}}],"form_inputs":[{"id":9,"label":"How"}]}` + "\x00" +
		`{"version":2,"entities":{"users":{"` + bo + `":{"bot":true}}},"messages":[` +
		`{"id":1201000000000000002,"author":` + bo + `,"content":"Hello","timestamp":"2024-01-28T02:00:00Z",` +
		`"embeds":[{"title":"A"}],"attachments":[{"filename":"a.png","url":"https://a.example/b","size":7}]}]}`},
	"ticket-tool": {`<script>let channel = {"name":"closed-0017","id":"1201000000000000000"};let server = {"id":"500000000000000001"};` +
		`let messages = [` + ticketToolMessage("1201000000000000001", ada, false, "Hello") + `];</script>`},
}

// repacked returns a zip of the texts of packed.
func repacked(t testing.TB, o Options, text string) string {
	t.Helper()
	first, second, _ := strings.Cut(text, "\x00")
	if o.From == "tickets-bot" {
		return zipped(t, "", "data.json", first, "guild_id.txt", o.Guild, "transcripts/17.json", second)
	}
	guild := cond(o.SourceGuild == "", o.Guild, o.SourceGuild)
	return zipped(t, `{"originalGuildId":"`+guild+`"}`, "settings.json", first, "tickets.jsonl", second)
}

func TestAScannerReadsWhatTheStandardDecoderReads(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{}`, ` [ ] `, `{"a":1}`, `{"a":-0}`, `{"a":01}`, `{"a":1.}`, `{"a":1.5e+7}`, `{"a":1e}`, `{"a":-}`, `{"a":.5}`, `{"a":+1}`, `-`, `1`,
		`"x"`, `tru`, `true`,
		`{"a":"b\n\"\\\/\b\f\r\t"}`, `{"a":"\u00e9\ud83e\udd16"}`, `{"a":"\ud83e"}`, `{"a":"\ud83ex"}`, `{"a":"\udd16\ud83e\udd16"}`,
		`{"a":"\ud83e\n"}`,
		`{"a":"\u12"}`, `{"a":"\x"}`, "{\"a\":\"\t\"}", "{\"a\":\"\x7f\"}", "{\"a\":\"\xc3\x28\"}", `{"a":"\u123g"}`, `{"a":"\`, `{"a":"\u`,
		`["\ud83e\u0041"]`,
		`{"a":[1,[2,{"b":null}],true,false]}`, `{"a":[1,]}`, `{"a":1,}`, `{"a" 1}`, `{"a":}`, `{a:1}`, `{"a":nul}`, `{"a":truee}`, `[1 2]`,
		`{"a":1 "b":2}`, `[,1]`,
	} {
		for _, size := range []int{1, 2, 1000} {
			s := newScanner("a", iotestReader{strings.NewReader(text), size})
			v, err := s.value()
			if err == nil {
				if _, end := s.peek(); end == nil {
					err = errors.New("more")
				}
			}
			var want any
			d := json.NewDecoder(strings.NewReader(text))
			d.UseNumber()
			theirs := d.Decode(&want)
			if strings.Contains(text, "\xc3\x28") {
				theirs = errors.New("it is stricter about UTF-8")
			}
			if theirs == nil && d.More() {
				theirs = errors.New("more")
			}
			switch {
			case (err == nil) != (theirs == nil):
				t.Errorf("%q: %v, and the standard decoder says %v", text, err, theirs)
			case err == nil && fmt.Sprintf("%#v", v.whole()) != fmt.Sprintf("%#v", want):
				t.Errorf("%q is read as %#v, want %#v", text, v.whole(), want)
			}
		}
	}
}

// iotestReader returns at most a few bytes at a time.
type iotestReader struct {
	io.Reader
	n int
}

func (r iotestReader) Read(p []byte) (int, error) { return r.Reader.Read(p[:min(len(p), r.n)]) }
