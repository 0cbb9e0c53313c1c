// Package proc reads what processes have used from Linux' /proc. Elsewhere all of
// it is 0.
package proc

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ticks a second of the times in /proc, which Linux fixes at 100.
const ticks = 100

// CPU is the time that a process has spent computing.
func CPU(pid int) time.Duration { return times(stat(pid), 11, 12) }

// stat returns the columns of /proc/PID/stat from the state on, which is the
// third; nil where there is no such process or no /proc.
func stat(pid int) []string {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return nil
	}
	// The second column is a name in parentheses and may hold anything.
	_, rest, _ := strings.Cut(string(b[strings.LastIndexByte(string(b), ')'):]), " ")
	return strings.Fields(rest)
}

func times(columns []string, which ...int) (d time.Duration) {
	for _, i := range which {
		if i < len(columns) {
			n, err := strconv.ParseInt(columns[i], 10, 64)
			if err == nil {
				d += time.Duration(n) * time.Second / ticks
			}
		}
	}
	return d
}

// CPUOfTree is that of a process and its children, those that have ended too.
func CPUOfTree(pid int) time.Duration {
	all := times(stat(pid), 11, 12, 13, 14)
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return all
	}
	for _, dir := range dirs {
		child, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		if c := stat(child); len(c) > 1 && c[1] == strconv.Itoa(pid) {
			all += times(c, 11, 12)
		}
	}
	return all
}

// RSS is a process's resident memory in bytes.
func RSS(pid int) int64 {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "statm"))
	if err != nil {
		return 0
	}
	columns := strings.Fields(string(b))
	if len(columns) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(columns[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// Postmaster returns the process of the Postgres whose data is in the folder.
func Postmaster(data string) (int, error) {
	b, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if err != nil {
		return 0, err
	}
	first, _, _ := bytes.Cut(b, []byte("\n"))
	pid, err := strconv.Atoi(string(first))
	if err != nil {
		return 0, fmt.Errorf("the process of Postgres: %w", err)
	}
	return pid, nil
}
