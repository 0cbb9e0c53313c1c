package convert

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// indexed is an entry of testdata/index.json: a command line and its result.
type indexed struct {
	Name             string
	Args, Files      []string
	Out              string
	LeftOut          *int64 `json:"left_out"`
	Changed, Unknown *int64
	Error            []string
	ErrorLacks       []string `json:"error_lacks"`
}

// index returns the entries of testdata/index.json.
func index(t testing.TB) []indexed {
	t.Helper()
	var all []indexed
	if err := json.Unmarshal([]byte(readFixture(t, "index.json")), &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// options returns the options of the command line.
func (c *indexed) options(t testing.TB) Options {
	t.Helper()
	var o Options
	texts := map[string]*string{
		"--from": &o.From, "--guild": &o.Guild, "--source-guild": &o.SourceGuild, "--record": &o.Record, "--path": &o.Path, "--xp": &o.XP,
		"--curve": &o.Curve, "--dates": &o.Dates, "--decimal": &o.Decimal,
	}
	for i := 0; i < len(c.Args); i++ {
		switch flag := c.Args[i]; flag {
		case "--settings":
			o.Settings = true
		case "--map":
			i++
			o.Map = append(o.Map, c.Args[i])
		case "--at":
			i++
			var err error
			if o.At, err = time.Parse(time.RFC3339, c.Args[i]); err != nil {
				t.Fatal(err)
			}
		default:
			if texts[flag] == nil {
				t.Fatalf("no flag %s", flag)
			}
			i++
			*texts[flag] = c.Args[i]
		}
	}
	return o
}

func sum(list []*Finding) (n int64) {
	for _, f := range list {
		n += f.Count
	}
	return n
}

func TestEachCallOfTheIndexHasItsOutcome(t *testing.T) {
	t.Parallel()
	for _, c := range index(t) {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			var paths []string
			for _, f := range c.Files {
				paths = append(paths, filepath.Join("testdata", filepath.Base(f)))
			}
			r := converted(t, c.options(t), paths...)
			if c.Out == "" {
				if r.err == nil {
					t.Fatalf("no error, and\n%s", r.out)
				}
				for _, has := range c.Error {
					if !strings.Contains(r.err.Error(), has) {
						t.Errorf("%q does not hold %q", r.err, has)
					}
				}
				for _, has := range c.ErrorLacks {
					if strings.Contains(r.err.Error(), has) {
						t.Errorf("%q holds %q", r.err, has)
					}
				}
				return
			}
			if r.err != nil {
				t.Fatal(r.err)
			}
			want, err := os.ReadFile(filepath.Join("testdata", c.Out))
			if err != nil {
				t.Fatal(err)
			}
			if r.out != string(want) {
				t.Errorf("got\n%s\nwant\n%s", r.out, want)
			}
			var unknown int64
			for _, n := range r.report.Unknown {
				unknown += n
			}
			for what, of := range map[string]struct {
				got  int64
				want *int64
			}{"left out": {sum(r.report.LeftOut), c.LeftOut}, "changed": {sum(r.report.Changed), c.Changed}, "unknown": {unknown, c.Unknown}} {
				if of.want != nil && of.got != *of.want {
					t.Errorf("%d %s, want %d: %s", of.got, what, *of.want, r.lost)
				}
			}
		})
	}
}
