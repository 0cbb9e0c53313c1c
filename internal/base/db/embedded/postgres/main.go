// Command postgres is the Makefile's tool for a local Postgres:
//
//	postgres ensure        finds the server programs, or installs them, or says how to
//	postgres with COMMAND  runs a command with a temporary server, whose URL is in
//	                       GUILDHALL_TEST_DATABASE_URL
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"guildhall/internal/base/db/embedded"
)

const variable = "GUILDHALL_TEST_DATABASE_URL"

func main() {
	if err := run(os.Args[1:]); err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			os.Exit(max(exit.ExitCode(), 1))
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "ensure":
		return ensure(context.Background())
	case len(args) > 1 && args[0] == "with":
		return with(args[1:])
	}
	return errors.New("usage: postgres ensure | postgres with COMMAND [ARGUMENT ...]")
}

// with runs the command with a temporary server, or with the server that the variable already
// names. A signal is passed to the command; the server is stopped when the command has ended.
func with(command []string) error {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	url := os.Getenv(variable)
	if url == "" {
		server, err := embedded.Start(context.Background(), embedded.Config{Fast: true, TCP: true, Memory: true})
		if err != nil {
			return err
		}
		defer func() {
			if err := server.Stop(); err != nil {
				fmt.Fprintln(os.Stderr, "stop Postgres:", err)
			}
		}()
		url = server.Local
	}
	cmd := exec.CommandContext(context.Background(), command[0], command[1:]...) //nolint:gosec // running what the caller names is what this is for
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), variable+"="+url)
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case err := <-ended:
			return err
		case s := <-signals:
			// Ctrl-C at a terminal reaches the command without our help.
			if s == syscall.SIGTERM {
				_ = cmd.Process.Signal(s) // fails if the command has just ended
			}
		}
	}
}

// manager is a package manager and its way to install the server programs.
type manager struct {
	program string
	install string
	root    bool // only root may install
}

var managers = []manager{
	{"apt-get", "apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends postgresql", true},
	{"dnf", "dnf install -y postgresql-server", true},
	{"apk", "apk add postgresql", true},
	{"zypper", "zypper --non-interactive install postgresql-server", true},
	{"pacman", "pacman -S --noconfirm postgresql", true},
	{"brew", "brew install postgresql@17", false},
}

// ensure finds the server programs. If there are none, it installs them if that needs no password;
// otherwise it returns an error with the command to run.
func ensure(ctx context.Context) error {
	if _, err := embedded.Find(ctx, 0); !errors.Is(err, embedded.ErrNoPrograms) {
		return err
	}
	for _, m := range managers {
		if _, err := exec.LookPath(m.program); err != nil {
			continue
		}
		shell := []string{"sh", "-c", m.install}
		if m.root && os.Geteuid() != 0 {
			if exec.CommandContext(ctx, "sudo", "-n", "true").Run() != nil {
				return fmt.Errorf("Guildhall needs the Postgres server programs. Install them with this line, then run make again:\n\n    sudo sh -c '%s'\n", m.install)
			}
			shell = append([]string{"sudo", "-n"}, shell...)
		}
		fmt.Fprintln(os.Stderr, "Installing the Postgres server programs:", m.install)
		cmd := exec.CommandContext(ctx, shell[0], shell[1:]...)
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("the installation failed (%w); install Postgres %d or newer by hand, then run make again", err, embedded.Oldest)
		}
		_, err := embedded.Find(ctx, 0)
		return err
	}
	return fmt.Errorf("Guildhall needs the Postgres server programs, version %d or newer: install them, then run make again", embedded.Oldest)
}
