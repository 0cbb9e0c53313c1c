package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

// within is an open transaction as a db.Doer, whose units are parts of the transaction.
type within struct{ tx *db.Tx }

// Do implements db.Doer.
func (w within) Do(ctx context.Context, fn func(ctx context.Context, tx *db.Tx) error) error {
	return fn(ctx, w.tx)
}

// showOnce calls run, which makes a secret and prints it with secret, in a transaction. So a secret
// works only if it was printed: a full disk or a closed pipe leaves everything as it was.
func showOnce(ctx context.Context, d db.Doer, run func(ctx context.Context, d db.Doer) error) error {
	// A write to a closed pipe would end the program without a word. With the signal caught, it
	// returns an error.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGPIPE)
	defer signal.Stop(caught)
	printed := false
	err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		if printed { // the commit has failed, and Do would call run again
			return errors.New("another transaction was in the way: try again")
		}
		err := run(ctx, within{tx})
		printed = err == nil
		return err
	})
	switch {
	case err == nil || !printed:
		return err
	case db.Uncertain(err):
		return fmt.Errorf("the database was lost before it had said whether the printed secret works: %w", err)
	}
	return fmt.Errorf("the printed secret does not work, for it was not kept: %w", err)
}

// secret prints a new secret within showOnce.
func (io streams) secret(asJSON bool, v any, format string, args ...any) error {
	err := io.unread()
	if err == nil {
		err = io.print(asJSON, v, format, args...)
	}
	return fault.Wrap(err, "nothing was kept: the secret could not be written")
}

// unread returns an error if nobody can read what is written to standard output. Go opens the null
// device in place of a standard output that is closed.
func (io streams) unread() error {
	out, ok := io.out.(*os.File)
	if !ok {
		return nil
	}
	info, err := out.Stat()
	if err != nil {
		return err
	}
	null, err := os.Stat(os.DevNull)
	if err == nil && os.SameFile(info, null) {
		err = errors.New("standard output is closed or leads to " + os.DevNull)
	}
	return err
}
