package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"time"
)

// drive sends requests over as many connections as there are clients, each
// waiting for its response before it sends the next. It speaks just enough HTTP
// itself, because net/http's client would take as much of the machine as the
// server that is being measured.
func drive(ctx context.Context, address string, request func(*rand.Rand, []byte) []byte, clients int, length time.Duration) (sample, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	found := make([]sample, clients)
	errs := make([]error, clients)
	begun := time.Now()
	for i := range clients {
		wg.Go(func() {
			found[i], errs[i] = client(ctx, address, request, begun.Add(length))
			if errs[i] != nil {
				cancel()
			}
		})
	}
	wg.Wait()
	all := sample{took: time.Since(begun)}
	for _, s := range found {
		all.latencies = append(all.latencies, s.latencies...)
	}
	return all, errors.Join(errs...)
}

func client(ctx context.Context, address string, request func(*rand.Rand, []byte) []byte, until time.Time) (s sample, err error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return s, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	in := bufio.NewReaderSize(conn, 32<<10)
	var out []byte
	for at := time.Now(); at.Before(until); {
		out = request(random, out[:0])
		if _, err := conn.Write(out); err != nil {
			return s, err
		}
		if err := writeResponse(in); err != nil {
			return s, err
		}
		now := time.Now()
		s.latencies = append(s.latencies, now.Sub(at))
		at = now
	}
	return s, nil
}

// writeResponse reads one response and takes anything but a success for a failure of the
// measurement.
func writeResponse(in *bufio.Reader) error {
	status, err := in.ReadSlice('\n')
	if err != nil {
		return err
	}
	ok := len(status) > 9 && status[9] == '2'
	first := string(bytes.TrimSpace(status))
	length, chunked := -1, false
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return err
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return err
			}
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			chunked = true
		}
	}
	if !ok {
		body := make([]byte, max(length, 0))
		_, _ = io.ReadFull(in, body)
		return fmt.Errorf("the server answered %s %s", first, body)
	}
	if !chunked {
		_, err = in.Discard(max(length, 0))
		return err
	}
	for {
		size, err := in.ReadSlice('\n')
		if err != nil {
			return err
		}
		n, err := strconv.ParseInt(string(bytes.TrimSpace(size)), 16, 32)
		if err != nil {
			return err
		}
		if _, err := in.Discard(int(n) + 2); err != nil || n == 0 {
			return err
		}
	}
}
