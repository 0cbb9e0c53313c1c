package embedded

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"

	"guildhall/internal/base/fault"
)

// copyOf makes the data directory a copy of a running primary's, as a standby that follows the
// primary once started.
func (s *Server) copyOf(ctx context.Context, primary *Server) error {
	if err := s.makeFolder(s.data); err != nil {
		return err
	}
	return s.baseBackup(ctx, primary, s.data, "--write-recovery-conf")
}

// Promote promotes a standby and returns when it accepts writes.
func (s *Server) Promote(ctx context.Context) error {
	return s.program(ctx, "pg_ctl", nil, "promote", "--wait", "--pgdata", s.data)
}

// Kill ends the server as a power failure would: nothing more is written, and clients are not
// notified. It returns when the main process has ended.
func (s *Server) Kill() error {
	if err := s.process.Kill(); err != nil {
		return fault.Wrap(err, "kill Postgres")
	}
	<-s.ended
	return nil
}

// Restart starts a killed server again with the same settings and returns when it is ready.
func (s *Server) Restart(ctx context.Context) error {
	for deadline := time.Now().Add(15 * time.Second); ; {
		err := s.launchAgain(ctx)
		if err == nil || !letsGo(err) || time.Now().After(deadline) {
			return err
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// program runs a Postgres program as the server's account.
func (s *Server) program(ctx context.Context, name string, env []string, args ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(s.programs.Dir, name), args...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = "/", append(environment(), env...), s.run.attributes()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, lastLines(string(out)))
	}
	return nil
}
