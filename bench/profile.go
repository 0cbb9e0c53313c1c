package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"

	"github.com/google/pprof/profile"
)

// learnAll drives every operation and writes where the server's time went, which
// the compiler reads when it builds the program. Names of folders are not kept.
func (h *host) learnAll(ctx context.Context) error {
	var parts []*profile.Profile
	for _, op := range operations(h) {
		fmt.Println("learning from", op.name)
		done := make(chan error, 1)
		go func() {
			_, err := drive(ctx, h.address, op.request, 8, h.length())
			done <- err
		}()
		p, err := h.sample(ctx)
		if err = errors.Join(err, <-done); err != nil {
			return fmt.Errorf("%s: %w", op.name, err)
		}
		parts = append(parts, p)
	}
	all, err := profile.Merge(parts)
	if err != nil {
		return err
	}
	for _, m := range all.Mapping {
		m.File = ""
	}
	for _, f := range all.Function {
		f.Filename = filepath.Base(f.Filename)
	}
	out, err := os.Create(h.learn)
	if err != nil {
		return err
	}
	return errors.Join(all.Compact().Write(out), out.Close())
}

// sample is a CPU profile of the server, as long as a round.
func (h *host) sample(ctx context.Context) (*profile.Profile, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		"http://"+h.ops+"/debug/pprof/profile?seconds="+strconv.Itoa(max(int(h.seconds), 1)), nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, errors.New("the server's profile: " + answer.Status)
	}
	return profile.Parse(answer.Body)
}
