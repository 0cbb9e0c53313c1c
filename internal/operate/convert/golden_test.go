package convert

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	ada = "190320984123768832"
	bo  = "205566812371058688"
	cy  = "221804569032130560"
	dee = "239960871354466304"
	mo  = "177281930144940032"
)

var june = time.Date(2024, 6, 1, 0, 0, 0, 0, time.UTC)

// result is the output of a conversion.
type result struct {
	out, lost string
	report    *Report
	err       error
}

// converted converts existing files.
func converted(t *testing.T, o Options, paths ...string) result {
	t.Helper()
	if o.At.IsZero() {
		o.At = june
	}
	inputs, done, err := Inputs(paths, nil)
	defer done()
	if err != nil {
		t.Fatal(err)
	}
	var out, lost bytes.Buffer
	var report *Report
	err = Run(t.Context(), o, inputs, &out, &lost, noted(&report))
	return result{out.String(), lost.String(), report, err}
}

// noted returns a function that stores a report.
func noted(report **Report) func(*Report) error {
	return func(r *Report) error { *report = r; return nil }
}

// of converts files with the given names and contents.
func of(t *testing.T, o Options, files ...string) result {
	t.Helper()
	dir := t.TempDir()
	var paths []string
	for i := 0; i < len(files); i += 2 {
		path := filepath.Join(dir, files[i])
		if err := os.WriteFile(path, []byte(files[i+1]), 0o600); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	r := converted(t, o, paths...)
	if r.err != nil {
		r.err = relative{r.err, dir}
	}
	return r
}

// relative is an error with file names without their folder.
type relative struct {
	error
	dir string
}

func (r relative) Error() string { return strings.ReplaceAll(r.error.Error(), r.dir+"/", "") }
func (r relative) Unwrap() error { return r.error }

// ok returns the records after the guild's record, one per line.
func (r result) ok(t *testing.T) string {
	t.Helper()
	if r.err != nil {
		t.Fatal(r.err)
	}
	_, rest, _ := strings.Cut(r.out, "\n")
	return rest
}

// fixture is a conversion whose expected file is NAME.out.jsonl in testdata.
type fixture struct {
	name  string
	o     Options
	files []string
}

// guild returns the id of the guild in the expected file.
func (f fixture) guild(t testing.TB) string {
	t.Helper()
	return wordAfter(readFixture(t, f.name+".out.jsonl"), `"id":"`)
}

// fixtures returns golden and the conversions of index.json that have an expected file of
// their own.
func fixtures(t testing.TB) []fixture {
	t.Helper()
	all := slices.Clone(golden)
	for _, c := range index(t) {
		name := strings.TrimSuffix(c.Out, ".out.jsonl")
		if name == "" || slices.ContainsFunc(golden, func(f fixture) bool { return f.name == name }) {
			continue
		}
		f := fixture{name: name, o: c.options(t)}
		for _, file := range c.Files {
			f.files = append(f.files, filepath.Base(file))
		}
		all = append(all, f)
	}
	return all
}

// golden lists the fixtures of the first formats.
var golden = []fixture{
	{"mee6", Options{From: "mee6"}, []string{"mee6.0.json", "mee6.1.json"}},
	{"csv-wallet", Options{From: "csv", Record: "wallet", Guild: "500000000000000005"}, []string{"csv-wallet.csv"}},
	{"csv-case", Options{From: "csv", Record: "case", Guild: "500000000000000006", Map: []string{
		"created_at=When", "user_id=Who", "moderator_id=Staff", "type=Action", "reason=Why",
	}}, []string{"csv-case.csv"}},
	{"unbelievaboat", Options{From: "unbelievaboat", Guild: "500000000000000002"}, []string{"unbelievaboat.json"}},
	{"lurkr", Options{From: "lurkr", Guild: "500000000000000003"}, []string{"lurkr.json"}},
	{"arcane", Options{From: "arcane", Guild: "500000000000000004", Curve: "arcane-linear"}, []string{"arcane.json"}},
	{"zeppelin", Options{From: "zeppelin", Guild: "500000000000000007"}, []string{"zeppelin.json"}},
	{"red", Options{From: "red", Settings: true, Guild: "500000000000000008"}, []string{
		"red.Bank.settings.json", "red.ModLog.settings.json", "red.Warnings.settings.json", "red.LevelUp.json",
	}},
	{"discord-tickets", Options{From: "discord-tickets"}, []string{"discord-tickets.zip"}},
	{"modmail", Options{From: "modmail"}, []string{"modmail.json"}},
	{"discord-giveaways", Options{From: "discord-giveaways", Guild: "500000000000000011"}, []string{"discord-giveaways.json"}},
}

func TestEachExpectedFileIsReproducedByteForByte(t *testing.T) {
	t.Parallel()
	for _, c := range golden {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var paths []string
			for _, f := range c.files {
				paths = append(paths, filepath.Join("testdata", f))
			}
			r := converted(t, c.o, paths...)
			if r.err != nil {
				t.Fatal(r.err)
			}
			want, err := os.ReadFile(filepath.Join("testdata", c.name+".out.jsonl"))
			if err != nil {
				t.Fatal(err)
			}
			if r.out != string(want) {
				t.Errorf("got\n%s\nwant\n%s", r.out, want)
			}
			var printed bytes.Buffer
			if err := r.report.Print(&printed); err != nil {
				t.Fatal(err)
			}
			t.Logf("%s%s", printed.String(), r.lost)
		})
	}
}
