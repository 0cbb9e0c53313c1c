package embedded

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"guildhall/internal/base/fault"
)

// Recovery describes a point-in-time recovery: a base backup of a server, and the write-ahead log
// that Config.Archive has kept since. The backup is consumed.
type Recovery struct {
	Of    *Server
	Base  string // the directory that BaseBackup returned
	Until time.Time
}

// settings returns the settings for replaying the log up to the instant and then accepting writes.
// The server is ready when the replay is done.
func (r *Recovery) settings() []string {
	return []string{
		`restore_command=cp "` + r.Of.archive() + `/%f" "%p"`, "hot_standby=off",
		"recovery_target_time=" + r.Until.UTC().Format("2006-01-02 15:04:05.999999+00"), "recovery_target_action=promote",
	}
}

func (s *Server) archive() string { return filepath.Join(s.Folder, "archive") }

// makeFolder creates a directory that the server's account owns.
func (s *Server) makeFolder(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil {
		return err
	}
	return s.run.own(path)
}

// BaseBackup copies the data of a running server, which needs Config.TCP, and returns the copy's
// directory.
func (s *Server) BaseBackup(ctx context.Context) (folder string, err error) {
	if folder, err = os.MkdirTemp(s.Folder, "base-"); err != nil {
		return "", err
	}
	if err := s.run.own(folder); err != nil {
		return "", err
	}
	return folder, s.baseBackup(ctx, s, folder)
}

// baseBackup copies a running server's data into an empty directory.
func (s *Server) baseBackup(ctx context.Context, of *Server, folder string, options ...string) error {
	u, err := url.Parse(of.URL)
	if err != nil {
		return err
	}
	err = s.program(ctx, "pg_basebackup", []string{"PGPASSWORD=" + of.password}, append([]string{
		"--pgdata", folder, "--host", u.Hostname(), "--port", u.Port(),
		"--username", "postgres", "--no-password", "--checkpoint", "fast", "--no-sync",
	}, options...)...)
	return fault.Wrap(err, "copy the server")
}

// comeFrom makes the data directory from a base backup.
func (s *Server) comeFrom(r *Recovery) error {
	if err := os.Rename(r.Base, s.data); err != nil {
		return err
	}
	signal := filepath.Join(s.data, "recovery.signal")
	if err := os.WriteFile(signal, nil, 0o600); err != nil {
		return err
	}
	return s.run.own(signal)
}
