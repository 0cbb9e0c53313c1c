package embedded

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// account is the system user that the server runs as; nil means the caller's own.
type account struct {
	name     string
	uid, gid uint32
}

// serverAccount returns nil for an ordinary user. Postgres refuses to run as root, so for root it
// returns the user postgres, or nobody if there is no such user.
func serverAccount() (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("user %s has the id %q: %w", name, u.Uid, err)
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("user %s has the group %q: %w", name, u.Gid, err)
		}
		return &account{name: name, uid: uint32(uid), gid: uint32(gid)}, nil
	}
	return nil, errors.New("Postgres does not run as root, and there is neither a user postgres nor nobody to run it under: start as an ordinary user")
}

// attributes returns the attributes to start a program as the account, in its own process group, so
// that Ctrl-C at the terminal reaches only the caller.
func (a *account) attributes() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if a != nil {
		attr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
	}
	return attr
}

// pointer is the file in the requested directory that says where the data is if it could not be
// stored there; ownerFile is the file beside the data that names the requested directory.
const (
	pointer   = "location"
	ownerFile = "asked-for-by"
)

// place returns the directory for the database of dir. It is dir itself unless the server's account
// cannot enter it, as with a checkout in root's home. Then it is a private directory under
// /var/tmp, and a file in dir says where.
func place(ctx context.Context, dir string, a *account) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	if a.reaches(dir) {
		return dir, a.own(dir)
	}
	note := filepath.Join(dir, pointer)
	if text, err := os.ReadFile(note); err == nil {
		there := strings.TrimSpace(string(text))
		if info, err := os.Stat(there); err == nil && info.IsDir() {
			return there, nil
		}
	}
	if err := removeAbandoned(ctx, dir, a); err != nil {
		return "", err
	}
	there, err := os.MkdirTemp(elsewhere(), prefix(dir))
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(there, ownerFile), []byte(dir+"\n"), 0o644); err != nil {
		return "", err
	}
	if err := a.own(there); err != nil {
		return "", err
	}
	return there, os.WriteFile(note, []byte(there+"\n"), 0o644)
}

func (a *account) own(path string) error {
	if a == nil {
		return nil
	}
	return os.Lchown(path, int(a.uid), int(a.gid))
}

// reaches reports whether the account can enter dir, judged by the permission bits of dir and all
// its parents.
func (a *account) reaches(dir string) bool {
	if a == nil {
		return true
	}
	for {
		info, err := os.Stat(dir)
		if err != nil {
			return false
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return false
		}
		bit := os.FileMode(0o001)
		switch {
		case st.Uid == a.uid:
			bit = 0o100
		case st.Gid == a.gid:
			bit = 0o010
		}
		if info.Mode().Perm()&bit == 0 {
			return false
		}
		up := filepath.Dir(dir)
		if up == dir {
			return true
		}
		dir = up
	}
}

// removeAbandoned deletes data that no Start can find any more: data of an earlier dir that was
// deleted with its pointer file, and data of temporary directories that are gone.
func removeAbandoned(ctx context.Context, dir string, a *account) error {
	all, err := filepath.Glob(filepath.Join(elsewhere(), "guildhall-*-*"))
	if err != nil {
		return err
	}
	for _, there := range all {
		info, err := os.Lstat(there)
		if err != nil || !info.IsDir() {
			continue
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok || st.Uid != a.uid {
			continue
		}
		text, err := os.ReadFile(filepath.Join(there, ownerFile))
		if err != nil {
			continue
		}
		if asked := strings.TrimSpace(string(text)); asked != dir && (!passing(asked) || !missing(asked)) {
			continue
		}
		if err := stopOrphan(ctx, filepath.Join(there, "data")); err != nil {
			return err
		}
		if err := os.RemoveAll(there); err != nil {
			return err
		}
	}
	return nil
}

// passing reports whether a directory is a temporary one.
func passing(dir string) bool {
	return strings.HasPrefix(dir, os.TempDir()+string(filepath.Separator)) || strings.HasPrefix(dir, "/tmp/")
}

func missing(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, os.ErrNotExist)
}

// elsewhere returns a directory that every account can enter, and that survives a restart of the
// machine where there is such a directory.
func elsewhere() string {
	if info, err := os.Stat("/var/tmp"); err == nil && info.IsDir() {
		return "/var/tmp"
	}
	return "/tmp"
}

func prefix(dir string) string { return "guildhall-" + short(dir) + "-" }

func short(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:6])
}
