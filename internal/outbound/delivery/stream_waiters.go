package delivery

import (
	"context"
	"slices"
	"strings"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

// partID identifies callers that wait for the same events: those of one shard of a stream whose
// keys have the same guilds.
type partID struct {
	stream        string // id of the stream
	shard, shards int
	guilds        string
}

// BeginPart is Begin for a part of a stream; done is the count of all guilds.
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
		w.wakeups.wake()
	}
	return one
}

// newestDue finds the guilds of the newest due events of a stream. The statement does not read all
// waiting events: a shard that nobody fetches may have a large backlog, which is older. If an event
// is missed, the next fetch finds it.
const newestDue = `
	SELECT DISTINCT guild_id
	FROM (
		SELECT guild_id
		FROM stream_deliveries
		WHERE stream_id = $1 AND due_at <= now()
		ORDER BY due_at DESC
		LIMIT $2
	) newest`

// newest is the number of events that newestDue reads.
const newest = 1000

// pollStreams wakes the callers that wait for a part of a stream with events: if one of the part's
// guilds is in woken, if a caller has started to wait since the last poll, or if all is set.
func (w *Waiters) pollStreams(ctx context.Context, woken []string, all bool) error {
	for _, stream := range w.awaited(woken, all) {
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

// awaited lists the streams that callers wait for and that may have events.
func (w *Waiters) awaited(woken []string, all bool) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var streams []string
	for id, one := range w.parts {
		if !slices.Contains(streams, id.stream) && (all || w.begun[id.stream] || slices.ContainsFunc(woken, one.serve.has)) {
			streams = append(streams, id.stream)
		}
	}
	clear(w.begun)
	return streams
}
