// Command mutants changes a package's conditions in SQL and the constants of its
// rules, one at a time, runs the package's tests on each, and prints the changes that
// no test notices. Those of Go's operators are gremlins' affair.
//
//	mutants [-run TESTS] [-skip TESTS] [-match TEXT] [-part 1/4] [-tests PACKAGE] PACKAGE...
//
// Tests that have noticed a change of the same file run first, the others when these pass.
// It changes no file: the compiler is shown another text (go build -overlay). Changes of
// texts in Go are built together, into one program that is told which of them to have.
// It is run beside a server for the tests; make mutants does that.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

func main() {
	var o options
	flag.StringVar(&o.run, "run", "", "which of the package's tests; empty: all")
	flag.StringVar(&o.skip, "skip", "", "which of them are left out, since they take long")
	flag.StringVar(&o.tests, "tests", "", "the package whose tests run; empty: the changed one's own")
	flag.StringVar(&o.match, "match", "", "only changes whose line, as it is printed, matches this expression")
	flag.StringVar(&o.part, "part", "1/1", "which part of the changes, for example 2/3")
	flag.BoolVar(&o.list, "list", false, "print the changes and run nothing")
	flag.BoolVar(&o.verbose, "v", false, "print which test notices a change, too")
	flag.DurationVar(&o.limit, "limit", 10*time.Minute, "how long a run may take; one that takes longer has noticed the change")
	flag.DurationVar(&o.wait, "wait", 30*time.Second, "how long a test waits for something that a change may keep away")
	flag.Parse()
	survived := 0
	for _, folder := range flag.Args() {
		n, err := try(context.Background(), o, folder)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		survived += n
	}
	if survived > 0 {
		os.Exit(1)
	}
}

type options struct {
	run, skip, tests, match, part string
	list, verbose                 bool
	limit, wait                   time.Duration
}

// try tries the changes of one package and returns how many survive.
func try(ctx context.Context, o options, folder string) (survived int, err error) {
	chosen, err := o.choose(folder)
	if err != nil || o.list {
		for _, c := range chosen {
			fmt.Println(c)
		}
		return 0, err
	}
	tests := cmp.Or(o.tests, folder)
	work, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(work)
	together := filepath.Join(work, "together.test")
	contents, err := allTogether(folder, chosen)
	if err == nil {
		err = makeTests(ctx, work, tests, together, contents)
	}
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, folder, "each change is built by itself:", err)
		for i := range chosen {
			chosen[i].number = 0
		}
	default:
		if by := notices(ctx, o, together, tests, 0); by != "" {
			return 0, fmt.Errorf("%s: the tests fail without a change: %s", folder, by)
		}
	}
	noticed, broken, before := 0, 0, make(map[string][]string)
	for _, c := range chosen {
		program := together
		if c.number == 0 {
			program = filepath.Join(work, "package.test")
			if makeTests(ctx, work, tests, program, map[string][]byte{c.file: c.applied()}) != nil {
				broken++
				continue
			}
		}
		by := noticesFirst(ctx, o, program, tests, c.number, before[c.file])
		test, _, _ := strings.Cut(by, " ")
		if by == "" {
			survived++
			fmt.Println("survives:", c)
			continue
		}
		noticed++
		if testName.MatchString(test) {
			before[c.file] = recent(before[c.file], test)
		}
		if o.verbose {
			fmt.Println("noticed:", c, "by", by)
		}
	}
	if by := notices(ctx, o, together, tests, 0); err == nil && by != "" {
		return 0, fmt.Errorf("%s: the tests fail at the end without a change too, and what they noticed may be void: %s", folder, by)
	}
	fmt.Printf("%s: %d changes noticed, %d not, %d do not compile\n", folder, noticed, survived, broken)
	return survived, nil
}

// choose returns the changes of a package that the options ask for.
func (o options) choose(folder string) (chosen []change, err error) {
	all, err := changes(folder)
	if err != nil {
		return nil, err
	}
	match, err := regexp.Compile(o.match)
	if err != nil {
		return nil, err
	}
	var part, parts int
	if _, err := fmt.Sscanf(o.part, "%d/%d", &part, &parts); err != nil || part < 1 || part > parts {
		return nil, fmt.Errorf("-part: %q is not a part such as 2/3", o.part)
	}
	for i, c := range all {
		if i%parts == part-1 && match.MatchString(c.String()) {
			chosen = append(chosen, c)
		}
	}
	return chosen, nil
}

// makeTests makes the program of a package's tests with other contents of files.
func makeTests(ctx context.Context, work, folder, program string, contents map[string][]byte) error {
	replaced := make(map[string]string)
	for file, content := range contents {
		path, err := filepath.Abs(file)
		if err != nil {
			return err
		}
		replaced[path] = filepath.Join(work, filepath.Base(file))
		if err := os.WriteFile(replaced[path], content, 0o600); err != nil {
			return err
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return err
	}
	overlay := filepath.Join(work, "overlay.json")
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", program, folder).CombinedOutput()
	return fault.Wrap(err, string(out))
}

// firstTests is how many tests that have noticed something run before the others.
const firstTests = 4

var testName = regexp.MustCompile(`^Test\w+$`)

// recent puts a test in front of those that have noticed a change of a file.
func recent(tests []string, name string) []string {
	tests = slices.DeleteFunc(tests, func(t string) bool { return t == name })
	tests = append([]string{name}, tests...)
	return tests[:min(len(tests), firstTests)]
}

// noticesFirst is notices with some tests run before all.
func noticesFirst(ctx context.Context, o options, program, folder string, number int, first []string) string {
	if len(first) > 0 {
		some := o
		some.run = "^(" + strings.Join(first, "|") + ")$"
		if by := notices(ctx, some, program, folder, number); by != "" {
			return by
		}
	}
	return notices(ctx, o, program, folder, number)
}

// notices returns which test of the package fails with the change of that number, or how
// the run of them ends otherwise; nothing where all pass. Where none runs that is said too.
func notices(ctx context.Context, o options, program, folder string, number int) string {
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	defer dropDatabases()
	args := []string{"-test.run=" + o.run, "-test.skip=" + o.skip, "-test.parallel=8"} // apitest.Main looks for this form
	if usesRapid(folder) {
		args = append(args, "-rapid.nofailfile", "-rapid.shrinktime=1ms")
	}
	tests := exec.CommandContext(ctx, program, args...)
	tests.Dir, tests.Env = folder, append(os.Environ(), variable+"="+strconv.Itoa(number), "GUILDHALL_TEST_WAIT="+o.wait.String())
	out, err := tests.StdoutPipe()
	if err != nil {
		return err.Error()
	}
	tests.Stderr = tests.Stdout // where it says that no test has run
	if err := tests.Start(); err != nil {
		return err.Error()
	}
	by := failing(out)
	if by != "" {
		cancel() // one is enough
	}
	if err := tests.Wait(); err != nil && by == "" {
		by = err.Error()
	}
	return by
}

// usesRapid reports whether tests of the package know rapid's flags.
func usesRapid(folder string) bool {
	files, _ := filepath.Glob(filepath.Join(folder, "*_test.go"))
	return slices.ContainsFunc(files, func(file string) bool {
		content, err := os.ReadFile(file)
		return err == nil && bytes.Contains(content, []byte(`"pgregory.net/rapid"`))
	})
}

// failing reads what tests print, until one has failed, whose name it returns with the
// first line that it says, or all have ended. A run without any test is a failure.
func failing(out io.Reader) string {
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "--- FAIL: "); ok {
			name, _, _ = strings.Cut(name, " ")
			why, _ := lines.ReadString('\n')
			return name + " " + strings.TrimSpace(why)
		}
		if strings.Contains(line, "no tests to run") {
			return line
		}
		if err != nil {
			return ""
		}
	}
}

// dropDatabases drops those that tests have left that were ended in their midst.
func dropDatabases() {
	url := os.Getenv("GUILDHALL_TEST_DATABASE_URL")
	if url == "" {
		return
	}
	pool, err := db.OpenSQL(url, "guildhall-mutants", 1)
	if err != nil {
		return
	}
	defer pool.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	rows, err := pool.QueryContext(ctx, `SELECT datname FROM pg_database WHERE datname LIKE 'guildhall\_test\_%'`)
	if err != nil {
		return
	}
	var names []string
	for rows.Next() {
		var name string
		if rows.Scan(&name) == nil {
			names = append(names, name)
		}
	}
	_ = rows.Close()
	for _, name := range names {
		_, _ = pool.ExecContext(ctx, `DROP DATABASE IF EXISTS `+name+` WITH (FORCE)`)
	}
}
