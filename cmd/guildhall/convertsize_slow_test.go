//go:build slow

package main

import (
	"archive/zip"
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Large inputs are read in little time and memory. A zip is not unpacked whole: what counts is
// what lies in it.
// RELIABILITY.md, Input.
func TestLargeInputsAreConvertedInLittleMemory(t *testing.T) { //nolint:paralleltest // it measures memory
	for _, c := range []struct {
		name, args string
		write      func(t *testing.T, path string)
		time       time.Duration // 0: no bound
		memory     int64         // MiB
	}{
		{"a million players of MEE6", "--from mee6 --guild 500000000000000001", aMillionPlayers, 20 * time.Second, 150},
		{"1 GiB of discord-tickets", "--from discord-tickets --guild 500000000000000001", aGibibyteOfDiscordTickets, 0, 200},
		{"1 GiB of Tickets.bot", "--from tickets-bot --guild 500000000000000001", aGibibyteOfTicketsBot, 0, 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "input")
			c.write(t, path)
			args := append([]string{"convert", "--out", os.DevNull, path}, strings.Fields(c.args)...)
			cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
			cmd.Env = append(os.Environ(), asProgram+"=1")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			// The processor's time tells the same on a busy machine.
			took, peak := cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime(), cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss/1024
			t.Logf("%s: %.1f s, %d MiB", c.name, took.Seconds(), peak)
			if c.time > 0 && took > c.time || peak > c.memory {
				t.Errorf("it took %.1f s and %d MiB", took.Seconds(), peak)
			}
		})
	}
}

// kibibyte is the text of a long message.
var kibibyte = strings.Repeat("Lorem ipsum ", 75)

// aGibibyteOfDiscordTickets makes an export of tickets with a hundred messages each.
func aGibibyteOfDiscordTickets(t *testing.T, path string) {
	t.Helper()
	zipped(t, path, `{"originalGuildId":"500000000000000001"}`, func(entry func(name string) io.Writer) {
		w := entry("tickets.jsonl")
		for id, n := 1201000000000000000, 0; n < 1<<30; {
			n += writef(w, `{"id":"%d","createdById":"190320984123768832","createdAt":"2024-01-28T02:00:00.000Z","archivedMessages":[`, id)
			for i := range 100 {
				id++
				n += writef(w, `%s{"id":"%d","authorId":"190320984123768832","createdAt":"2024-01-28T02:00:00Z","content":"{\"content\":\"%s\"}"}`,
					strings.Repeat(",", min(i, 1)), id, kibibyte)
			}
			n += writef(w, "]}\n")
		}
	})
}

// aGibibyteOfTicketsBot makes a zip of data.json and of transcripts of a thousand messages
// each.
func aGibibyteOfTicketsBot(t *testing.T, path string) {
	t.Helper()
	zipped(t, path, "", func(entry func(name string) io.Writer) {
		w := entry("data.json")
		writef(w, `{"guild_id":"500000000000000001","tickets":[`)
		for id := range 1024 {
			writef(w, `%s{"id":%d,"user_id":190320984123768832,"open":false,"open_time":"2024-01-01T00:00:00Z"}`,
				strings.Repeat(",", min(id, 1)), id+1)
		}
		writef(w, `]}`)
		for ticket, id := 1, 1201000000000000000; ticket <= 1024; ticket++ {
			w := entry(fmt.Sprintf("transcripts/%d.json", ticket))
			writef(w, `{"version":2,"messages":[`)
			for i := range 1000 {
				id++
				writef(w, `%s{"id":%d,"author":190320984123768832,"timestamp":"2024-01-28T02:00:00Z","embeds":[],"attachments":[],"content":"%s"}`,
					strings.Repeat(",", min(i, 1)), id, kibibyte)
			}
			writef(w, `]}`)
		}
	})
}

func writef(w io.Writer, format string, args ...any) int {
	n, _ := fmt.Fprintf(w, format, args...) // an error comes again when the file is closed
	return n
}

func aMillionPlayers(t *testing.T, path string) {
	t.Helper()
	written(t, path, func(w io.Writer) {
		writef(w, `{"guild":{"id":"500000000000000001"},"players":[`)
		for i := range 1_000_000 {
			writef(w, `%s{"id":"%d","xp":%d,"level":0,"avatar":"a_0123456789abcdef","message_count":7,"username":"somebody"}`+"\n",
				strings.Repeat(",", min(i, 1)), 190320984123768833+i, i%100)
		}
		writef(w, `]}`)
	})
}

// written makes a file.
func written(t *testing.T, path string, content func(w io.Writer)) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriterSize(f, 1<<20)
	content(w)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// zipped makes a zip.
func zipped(t *testing.T, path, comment string, content func(entry func(name string) io.Writer)) {
	t.Helper()
	written(t, path, func(w io.Writer) {
		z := zip.NewWriter(w)
		content(func(name string) io.Writer {
			entry, err := z.Create(name)
			if err != nil {
				t.Fatal(err)
			}
			return entry
		})
		if err := z.SetComment(comment); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
