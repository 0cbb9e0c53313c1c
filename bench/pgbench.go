package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// pgbench runs the operation's statement and nothing else, as prepared
// statements over as many connections as there are clients.
func (h *host) pgbench(ctx context.Context, op operation, clients int) (s sample, err error) {
	dir, err := os.MkdirTemp(h.folder, "pgbench-")
	if err != nil {
		return s, err
	}
	defer os.RemoveAll(dir)
	script := filepath.Join(dir, "script.sql")
	// pgbench takes a statement as one line or until a semicolon.
	if err := os.WriteFile(script, []byte(op.script+"\n"), 0o600); err != nil {
		return s, err
	}
	seconds := max(int(h.seconds+0.5), 1)
	cmd := exec.CommandContext(ctx, h.pgbenchProgram, "--no-vacuum", "--protocol=prepared", "--file="+script,
		"--client="+strconv.Itoa(clients), "--jobs="+strconv.Itoa(min(clients, 2)), "--time="+strconv.Itoa(seconds),
		"--define=guild="+guildID, "--define=wallets="+strconv.Itoa(h.wallets),
		"--log", "--log-prefix="+filepath.Join(dir, "log"), h.databaseURL)
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return s, fmt.Errorf("pgbench: %w\n%s", err, out.String())
	}
	if bytes.Contains(out.Bytes(), []byte("ERROR")) {
		return s, fmt.Errorf("pgbench: %s", out.String())
	}
	logs, err := filepath.Glob(filepath.Join(dir, "log.*"))
	if err != nil {
		return s, err
	}
	for _, name := range logs {
		if err := readLog(name, &s); err != nil {
			return s, err
		}
	}
	s.took = time.Duration(seconds) * time.Second
	return s, nil
}

// readLog reads the latency, in microseconds the third column, of each
// transaction.
func readLog(name string, s *sample) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		columns := strings.Fields(lines.Text())
		if len(columns) < 3 {
			continue
		}
		us, err := strconv.ParseInt(columns[2], 10, 64)
		if err != nil {
			return fmt.Errorf("pgbench's log: %w", err)
		}
		s.latencies = append(s.latencies, time.Duration(us)*time.Microsecond)
	}
	return lines.Err()
}
