package embedded

import (
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"guildhall/internal/base/fault"
)

// Config is the configuration of a Server.
type Config struct {
	// Dir is the directory that keeps the database between starts. Empty means a temporary
	// directory that is deleted when the server stops.
	Dir string
	// Fast switches fsync and similar safety off, for tests.
	Fast bool
	// Memory keeps a temporary database in a file system in memory, if one has room. For tests,
	// which each create and drop a database, a thousand files on disk.
	Memory bool
	// TCP makes the server also listen on a free loopback port, with a generated password, and URL
	// contains both. For tests that put a proxy between a program and its database.
	TCP bool
	// Settings are further server settings, each as name=value.
	Settings []string
	// Of makes the server a standby that follows another server with TCP, until Promote.
	Of *Server
	// Archive keeps the server's complete write-ahead log, for Recovery.
	Archive bool
	// From starts the server from a backup of another server.
	From *Recovery
}

// Server is a running Postgres server.
type Server struct {
	// URL connects to the server's database as its superuser: over a Unix socket in a directory
	// that only the server's account and root can enter, or with Config.TCP over loopback with the
	// password.
	URL string
	// Local connects over the Unix socket, with Config.TCP too. Over the socket the server spends 3.9 ms
	// on a session and 42 us on SELECT 1, over TCP 5.7 ms and 58 us.
	Local string
	// Folder is the directory of the data: Config.Dir, or another one if the server's account
	// cannot enter Config.Dir.
	Folder string

	data      string
	run       *account
	programs  Programs
	password  string // empty without Config.TCP
	process   *os.Process
	ended     chan struct{} // closed when the process has ended; the fields below are used only by the goroutine that owns the server
	lock      *os.File
	guard     io.WriteCloser
	temporary bool
	socket    string // a temporary directory for the socket, if it is not in Folder

	launchAgain func(ctx context.Context) error // starts the server again with the same arguments
}

// Start starts a server on the directory of cfg, and first creates the database if there is none.
// It cleans up after a parent or a server that was killed. A second Start on the same directory
// fails while the first server runs.
//
// The server runs until Stop, or until the calling process dies.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	run, err := serverAccount()
	if err != nil {
		return nil, err
	}
	s := &Server{temporary: cfg.Dir == "", ended: make(chan struct{}), run: run}
	if cfg.TCP {
		if !s.temporary {
			return nil, errors.New("embedded: TCP is for temporary databases, whose password is made with them")
		}
		s.password = rand.Text()
	}
	if cfg.Of != nil {
		if !cfg.TCP || cfg.Fast || cfg.Of.password == "" {
			return nil, errors.New("embedded: a standby and its primary have TCP, and are not fast")
		}
		s.password = cfg.Of.password
	}
	if cfg.From != nil {
		s.password = cfg.From.Of.password
	}
	if err := s.chooseFolder(ctx, cfg, run); err != nil {
		return nil, fault.Wrap(err, "prepare the database folder")
	}
	if err := s.start(ctx, cfg, run); err != nil {
		return nil, errors.Join(err, s.cleanUp())
	}
	return s, nil
}

// chooseFolder chooses the directory for the data and locks it.
func (s *Server) chooseFolder(ctx context.Context, cfg Config, run *account) (err error) {
	if s.temporary {
		above := temporaryFolder(run)
		if cfg.Memory && roomInMemory() {
			above = memory
		}
		if s.Folder, err = os.MkdirTemp(above, "guildhall-pg-"); err != nil {
			return err
		}
		if err := run.own(s.Folder); err != nil {
			return err
		}
	} else {
		abs, err := filepath.Abs(cfg.Dir)
		if err != nil {
			return err
		}
		if s.Folder, err = place(ctx, abs, run); err != nil {
			return err
		}
	}
	s.data = filepath.Join(s.Folder, "data")
	s.lock, err = os.OpenFile(filepath.Join(s.Folder, "lock"), os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	if err := syscall.Flock(int(s.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		s.lock.Close()
		return fmt.Errorf("%s is in use by another running guildhall", s.Folder)
	}
	return nil
}

func (s *Server) start(ctx context.Context, cfg Config, run *account) error {
	if err := stopOrphan(ctx, s.data); err != nil {
		return err
	}
	programs, err := Find(ctx, madeBy(s.data))
	if err != nil {
		return err
	}
	s.programs = programs
	switch {
	case cfg.Of != nil:
		err = s.copyOf(ctx, cfg.Of)
	case cfg.From != nil:
		err = s.comeFrom(cfg.From)
	case madeBy(s.data) == 0:
		err = s.create(ctx, programs, run)
	}
	if err == nil && cfg.Archive {
		err = s.makeFolder(s.archive())
	}
	if err != nil {
		return err
	}
	sockets, err := s.sockets(run)
	if err != nil {
		return err
	}
	// The child processes of a killed server take a moment to exit and release its shared memory;
	// until then a new server refuses to start.
	for deadline := time.Now().Add(15 * time.Second); ; {
		port, err := s.port(ctx)
		if err != nil {
			return err
		}
		s.launchAgain = func(ctx context.Context) error { return s.launch(ctx, programs, run, sockets, port, cfg) }
		if err = s.launchAgain(ctx); err == nil {
			s.URL, s.Local = s.urls(sockets, port)
			return nil
		}
		if !letsGo(err) || time.Now().After(deadline) {
			return err
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// letsGo reports whether a server failed to start because of shared memory or a port that will soon
// be released.
func letsGo(err error) bool {
	return strings.Contains(err.Error(), "is still in use") || strings.Contains(err.Error(), "could not create any TCP/IP sockets")
}

// urls returns URL and Local.
func (s *Server) urls(sockets string, port int) (main, local string) {
	u := url.URL{Scheme: "postgres", User: url.User("postgres"), Path: "/postgres"}
	if s.password != "" {
		u.User = url.UserPassword("postgres", s.password)
	}
	u.RawQuery = url.Values{"sslmode": {"disable"}, "host": {sockets}, "port": {strconv.Itoa(port)}}.Encode()
	if local = u.String(); s.password == "" {
		return local, local
	}
	u.Host, u.RawQuery = net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), "sslmode=disable"
	return u.String(), local
}

// port returns a free port for TCP. Without TCP the number only names the socket.
func (s *Server) port(ctx context.Context) (int, error) {
	if s.password == "" {
		return 5432, nil
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return 0, fmt.Errorf("the address %s has no port", l.Addr())
	}
	return addr.Port, nil
}

// create creates the database in a temporary directory and renames it, so that an interrupted
// attempt leaves nothing that looks complete.
func (s *Server) create(ctx context.Context, programs Programs, run *account) error {
	fresh := s.data + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	if err := os.Mkdir(fresh, 0o700); err != nil {
		return err
	}
	if err := run.own(fresh); err != nil {
		return err
	}
	args := []string{
		"--pgdata", fresh, "--username", "postgres", "--encoding", "UTF8", "--no-locale",
		"--no-sync", "--auth-local", "trust", "--auth-host",
	}
	if s.password == "" {
		args = append(args, "reject")
	} else {
		secret := filepath.Join(s.Folder, "password")
		stored, err := hashed(s.password)
		if err != nil {
			return err
		}
		if err := os.WriteFile(secret, []byte(stored+"\n"), 0o600); err != nil {
			return err
		}
		defer os.Remove(secret)
		if err := run.own(secret); err != nil {
			return err
		}
		args = append(args, "scram-sha-256", "--pwfile", secret)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(programs.Dir, "initdb"), args...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = "/", environment(), run.attributes()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make the database folder: %w: %s", err, lastLines(string(out)))
	}
	return os.Rename(fresh, s.data)
}

// rounds is the number of iterations with which the password is hashed, instead of 4,096: the
// password is random and needs no slow hash, and tests connect often. lib/pq rejects numbers below
// 1,000.
const rounds = 1000

// hashed returns a password in the form in which Postgres stores it for SCRAM-SHA-256 (RFC 5802,
// section 3).
func hashed(password string) (string, error) {
	salt := []byte(rand.Text()[:16])
	salted, err := pbkdf2.Key(sha256.New, password, salt, rounds, sha256.Size)
	if err != nil {
		return "", err
	}
	keyed := func(name string) []byte {
		h := hmac.New(sha256.New, salted)
		h.Write([]byte(name))
		return h.Sum(nil)
	}
	client, text := sha256.Sum256(keyed("Client Key")), base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$%d:%s$%s:%s", rounds, text(salt), text(client[:]), text(keyed("Server Key"))), nil
}

// sockets returns the directory of the server's socket: Folder, or a temporary directory if the
// path would exceed the limit for sockets.
func (s *Server) sockets(run *account) (string, error) {
	dir := filepath.Join(s.Folder, "socket")
	if len(dir) > 80 {
		made, err := os.MkdirTemp(temporaryFolder(run), "guildhall-")
		if err != nil {
			return "", err
		}
		s.socket, dir = made, made
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return "", err
	}
	return dir, run.own(dir)
}

func (s *Server) launch(ctx context.Context, programs Programs, run *account, sockets string, port int, cfg Config) error {
	args := []string{"-D", s.data}
	for _, setting := range s.settings(sockets, port, cfg) {
		args = append(args, "-c", setting)
	}
	path := filepath.Join(s.Folder, "postgres.log")
	log, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	// The server must outlive the context of Start.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), filepath.Join(programs.Dir, "postgres"), args...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = "/", environment(), run.attributes()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fault.Wrap(err, "start Postgres")
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // its exit status is not needed: the server's log says why it ended
		close(ended)
	}()
	s.process, s.ended = cmd.Process, ended
	if s.guard == nil {
		if s.guard, err = startGuard(ctx, s, run); err != nil {
			return err
		}
	}
	// After a crash the server replays its log before it is ready. For a recovery the state
	// "standby" only means that the replay has begun, so it does not count as ready.
	for {
		pid, state, err := pidFile(s.data)
		if err == nil && pid == cmd.Process.Pid && (state == "ready" || state == "standby" && cfg.Of != nil) {
			return nil
		}
		select {
		case <-ended:
			text, _ := os.ReadFile(path)
			return fmt.Errorf("Postgres did not start: %s", lastLines(string(text)))
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// settings returns the server's settings; a later one overrides an earlier one.
func (s *Server) settings(sockets string, port int, cfg Config) []string {
	listen := ""
	if s.password != "" {
		listen = "127.0.0.1"
	}
	settings := []string{
		"listen_addresses=" + listen, "port=" + strconv.Itoa(port), "unix_socket_directories=" + sockets,
		"max_connections=400", "logging_collector=off", "log_min_messages=warning", "cluster_name=guildhall",
	}
	if cfg.Fast {
		settings = append(settings, "fsync=off", "synchronous_commit=off", "full_page_writes=off",
			"wal_level=minimal", "max_wal_senders=0", "max_wal_size=4GB", "checkpoint_timeout=30min")
	}
	if cfg.Archive {
		settings = append(settings, "archive_mode=on", `archive_command=test ! -f "`+s.archive()+`/%f" && cp "%p" "`+s.archive()+`/%f"`)
	}
	if cfg.From != nil {
		settings = append(settings, cfg.From.settings()...)
	}
	return append(settings, cfg.Settings...)
}

// Ended returns a channel that is closed when the server has ended, by Stop or by itself.
func (s *Server) Ended() <-chan struct{} { return s.ended }

// Stop shuts the server down, waits for its end and deletes a temporary database. Further calls do
// nothing.
func (s *Server) Stop() error { return s.cleanUp() }

func (s *Server) cleanUp() error {
	var errs []error
	if s.process != nil {
		err := end(s.process.Pid, func() bool {
			select {
			case <-s.ended:
				return true
			default:
				return false
			}
		})
		errs, s.process = append(errs, err), nil
	}
	if s.guard != nil {
		// fails if the guard was killed, which does no harm
		_, _ = io.WriteString(s.guard, "stopped\n")
		_ = s.guard.Close()
		s.guard = nil
	}
	if s.temporary {
		errs = append(errs, os.RemoveAll(s.Folder))
	}
	if s.socket != "" {
		errs = append(errs, os.RemoveAll(s.socket))
	}
	if s.lock != nil {
		errs, s.lock = append(errs, s.lock.Close()), nil
	}
	return errors.Join(errs...)
}

// madeBy returns the major version that created the database, or 0 if there is none.
func madeBy(data string) int {
	text, err := os.ReadFile(filepath.Join(data, "PG_VERSION"))
	if err != nil {
		return 0
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return major
}

// temporaryFolder returns the parent of temporary directories, which the server's account can
// enter.
func temporaryFolder(run *account) string {
	if dir := os.TempDir(); run.reaches(dir) && len(dir) < 60 {
		return dir
	}
	return "/tmp"
}

// memory is Linux's file system in memory.
const memory = "/dev/shm"

// roomInMemory reports whether memory has ample room for a test database; containers often have 64
// MB there.
func roomInMemory() bool {
	var there syscall.Statfs_t
	return runtime.GOOS == "linux" && syscall.Statfs(memory, &there) == nil &&
		there.Bavail*uint64(there.Bsize) > 4<<30
}

// environment returns the environment without PG* variables, which would influence the server.
func environment() []string {
	env := []string{"LC_ALL=C", "TZ=UTC"}
	for _, v := range os.Environ() {
		switch name, _, _ := strings.Cut(v, "="); name {
		case "PATH", "HOME", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH":
			env = append(env, v)
		}
	}
	return env
}

// lastLines returns the end of a program's output as one line.
func lastLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) > 4 {
		lines = lines[len(lines)-4:]
	}
	return strings.Join(lines, " | ")
}
