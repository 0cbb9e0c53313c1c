package embedded

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// stopOrphan stops a server that a killed parent has left running on data, and removes a stale pid
// file. The caller holds the directory's lock, so no live process owns the server.
func stopOrphan(ctx context.Context, data string) error {
	pid, _, err := pidFile(data)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil || !serves(ctx, pid, data) {
		// Postgres would refuse to start if the process id in the file now belongs to another
		// process.
		if err := os.Remove(filepath.Join(data, "postmaster.pid")); err != nil && !os.IsNotExist(err) {
			return err
		}
		return nil
	}
	return end(pid, func() bool { return !serves(ctx, pid, data) })
}

// pidFile reads the pid file of a running server: the process id in the first line, the state in
// the eighth.
func pidFile(data string) (pid int, state string, err error) {
	text, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if err != nil {
		return 0, "", err
	}
	lines := strings.Split(string(text), "\n")
	pid, err = strconv.Atoi(strings.TrimSpace(lines[0]))
	if err != nil {
		return 0, "", err
	}
	if len(lines) > 7 {
		state = strings.TrimSpace(lines[7])
	}
	return pid, state, nil
}

// end stops a server: first by a fast shutdown, then by an immediate one, at last by SIGKILL.
func end(pid int, gone func() bool) error {
	for _, step := range []struct {
		signal syscall.Signal
		wait   time.Duration
	}{{syscall.SIGINT, 20 * time.Second}, {syscall.SIGQUIT, 5 * time.Second}, {syscall.SIGKILL, 5 * time.Second}} {
		if err := syscall.Kill(pid, step.signal); err != nil && err != syscall.ESRCH {
			return fmt.Errorf("stop the Postgres server %d: %w", pid, err)
		}
		if until(step.wait, gone) {
			return nil
		}
	}
	return fmt.Errorf("the Postgres server %d does not stop", pid)
}

// until polls done and reports whether done returned true within limit.
func until(limit time.Duration, done func() bool) bool {
	for deadline := time.Now().Add(limit); ; time.Sleep(10 * time.Millisecond) {
		if done() {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
	}
}

// serves reports whether process pid is a running Postgres server on data.
func serves(ctx context.Context, pid int, data string) bool {
	if err := syscall.Kill(pid, 0); err != nil {
		return false
	}
	if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil {
		// A zombie, a dead process that its parent has not waited for, has state Z.
		if i := bytes.LastIndexByte(stat, ')'); i >= 0 && i+2 < len(stat) && stat[i+2] == 'Z' {
			return false
		}
	}
	command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		out, err := exec.CommandContext(ctx, "ps", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
		if err != nil {
			return false
		}
		command = out
	}
	return bytes.Contains(command, []byte("postgres")) && bytes.Contains(command, []byte(data))
}
