package main

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"guildhall/internal/base/testutil"
)

func TestAFileThatIsNamedTwiceIsNeitherReadNorWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	source := dir + "/zeppelin.json"
	text, err := os.ReadFile(fixtures + "zeppelin.json")
	if err == nil {
		err = os.WriteFile(source, text, 0o644)
	}
	if err == nil {
		err = os.WriteFile(dir+"/force.csv", []byte("user_id,type\n"), 0o644)
	}
	if err == nil {
		err = os.Link(source, dir+"/again")
	}
	if err == nil {
		err = os.Symlink(".", dir+"/here")
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ flags, want string }{
		{"--out DIR/x --report DIR/x", "--report: DIR/x is named for --out too"},
		{"--out DIR/x --left-out DIR/here/x", "--left-out: DIR/here/x is named for --out too"},
		{"--report DIR/x --left-out DIR/./x", "--left-out: DIR/./x is named for --report too"},
		{"--out DIR/zeppelin.json", "--out: DIR/zeppelin.json is a file that is read"},
		{"--left-out DIR/again", "--left-out: DIR/again is a file that is read"},
		{"--report DIR/force.csv", "--report: DIR/force.csv is a file that is read"},
	} {
		args := strings.Fields(strings.ReplaceAll("convert --from zeppelin --guild 7 --in-force DIR/force.csv "+c.flags, "DIR", dir))
		r := call(t, "", append(args, source)...)
		r.refused(t, 2, strings.ReplaceAll(c.want, "DIR", dir))
		if r.out != "" {
			t.Errorf("%s: %q went out", c.flags, r.out)
		}
	}
	all := folder(t, dir)
	if now, err := os.ReadFile(source); err != nil || string(now) != string(text) || len(all) != 4 {
		t.Errorf("there are %v, and the source is %q (%v)", all, now, err)
	}
	// Two outputs may go to the same device.
	call(t, "", conversion("--from", "lurkr", "--guild", "7", "--report", os.DevNull, "--left-out", os.DevNull, "lurkr.json")...).ok(t)
}

func TestAPipeGetsNoWholeFileWhereTheReportCannotBeWritten(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{
		{"--report", t.TempDir() + "/no/folder/r"},
		{"--report", t.TempDir()},
		{"--report", "/dev/full"},
		{"--left-out", "/dev/full"},
		{"--report", "-"},
	} {
		r := call(t, "", conversion(append(flags, "--from", "zeppelin", "--guild", "7", "zeppelin.json")...)...)
		if r.code == 0 || r.out != "" {
			t.Errorf("%v: exit code %d, and %q went out", flags, r.code, r.out)
		}
	}
}

// When the reader of a pipe goes away, SIGPIPE must not end the program before it has cleaned up.
func TestAPipeThatIsClosedLeavesNoFileBehind(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "convert", "--from", "mee6", "--guild", "500000000000000001",
		"--left-out", dir+"/lost", "--report", dir+"/report", "-")
	cmd.Env = append(os.Environ(), asProgram+"=1")
	cmd.Stdin = strings.NewReader(players(20_000))
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		_, err = io.ReadFull(out, make([]byte, 10))
	}
	if err == nil {
		err = out.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	err = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 1 {
		t.Errorf("exit code %d (%v)", code, err)
	}
	if left := folder(t, dir); len(left) > 0 {
		t.Errorf("there are %v", left)
	}
}

// Closing the terminal ends a conversion as Ctrl-C does: it cleans up.
func TestATerminalThatIsClosedLeavesNoFileBehind(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "convert", "--from", "mee6", "--guild", "500000000000000001",
		"--left-out", dir+"/lost", "--report", dir+"/report", "--out", dir+"/out", "-")
	cmd.Env = append(os.Environ(), asProgram+"=1")
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, "three files", func() bool { return len(folder(t, dir)) == 3 })
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	_ = in.Close()
	err = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 1 {
		t.Errorf("exit code %d (%v)", code, err)
	}
	if left := folder(t, dir); len(left) > 0 {
		t.Errorf("there are %v", left)
	}
}
