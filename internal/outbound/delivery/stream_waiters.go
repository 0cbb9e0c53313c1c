package delivery

import (
	"context"
	"slices"
	"strings"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

// partID is which callers wait for the same: those of one shard of a stream whose keys
// serve the same guilds.
type partID struct {
	stream        string // its id
	shard, shards int
	guilds        string
}

// BeginPart is Begin for a part of a stream, where done is that of all guilds.
func (w *Waiters) BeginPart(stream string, p Part, done uint32) *Waiter {
	id := partID{stream, p.Shard, p.Shards, strings.Join(p.Guilds, " ")}
	one := &Waiter{among: w, part: id, serve: p, woken: make(chan struct{}, 1), over: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		close(one.over)
		return one
	}
	if before := w.parts[id]; before != nil {
		close(before.over)
	} else {
		w.n++
	}
	w.parts[id] = one
	if w.Done("") != done {
		w.begun[stream] = true
		w.bell.wake()
	}
	return one
}

// newestDue finds in which guilds the events happened that have become due for a stream
// last. It does not go by what waits: a shard that nobody fetches may have a large
// backlog, which is older. The next fetch finds what it misses.
const newestDue = `
	SELECT DISTINCT guild_id
	FROM (
		SELECT guild_id
		FROM stream_deliveries
		WHERE stream_id = $1 AND due_at <= now()
		ORDER BY due_at DESC
		LIMIT $2
	) newest`

// newest is how many of them.
const newest = 1000

// pollStreams wakes those who wait for a part of a stream that has something: where one
// of its guilds has rung, somebody has begun to wait meanwhile, or in any case.
func (w *Waiters) pollStreams(ctx context.Context, rung []string, all bool) error {
	for _, stream := range w.awaited(rung, all) {
		guilds, err := db.Select[string](ctx, w.db.Reader(), newestDue, stream, newest)
		if err != nil {
			return fault.Wrap(err, "look for what can be fetched from stream", stream)
		}
		w.mu.Lock()
		for id, one := range w.parts {
			if id.stream == stream && slices.ContainsFunc(guilds, one.serve.has) {
				one.wake()
			}
		}
		w.mu.Unlock()
	}
	return nil
}

// awaited lists the streams that somebody waits for who may have something.
func (w *Waiters) awaited(rung []string, all bool) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var streams []string
	for id, one := range w.parts {
		if !slices.Contains(streams, id.stream) && (all || w.begun[id.stream] || slices.ContainsFunc(rung, one.serve.has)) {
			streams = append(streams, id.stream)
		}
	}
	clear(w.begun)
	return streams
}
