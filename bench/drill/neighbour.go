package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// neighbourSize is how big the drill is.
type neighbourSize struct {
	ledger  int           // rows of guild A's ledger
	length  time.Duration // of the baseline and of each attack
	measure bool          // hold B's times against its baseline
}

var fullNeighbour = neighbourSize{ledger: 1_000_000, length: 12 * time.Second, measure: true}

const guildA, guildB = "100000000000000001", "200000000000000002"

// neighbour lets guild A do its worst inside its quotas, each thing in turn and
// all at once, and watches what guild B and the machinery notice.
func neighbour(ctx context.Context, p place, r *report, size neighbourSize) (err error) {
	if err := p.load(ctx, size.guilds); err != nil {
		return err
	}
	env, closeNames, err := silentNames()
	if err != nil {
		r.say("name servers cannot be replaced here (%v): names are asked of the machine's own", err)
	} else {
		defer closeNames()
		p = p.behind(env)
	}
	s, err := p.serve(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if stopped := s.Stop(); err == nil {
			err = stopped
		}
	}()
	b := &victim{server: s}
	if b.tokens, err = p.tokens(ctx, guildB, 64); err != nil {
		return err
	}
	if b.fresh, err = p.tokens(ctx, guildB, 400); err != nil {
		return err
	}
	base, err := b.live(ctx, size.length, nil)
	if err != nil {
		return err
	}
	base.judge(r, "alone", nil, false)
	for _, a := range append(attacks, attack{"all of them at once", allAtOnce}) {
		site := &attackSite{server: s, rows: size.ledger}
		if site.tokens, err = p.tokens(ctx, guildA, 2*len(attacks)); err != nil {
			return err
		}
		seen, err := b.live(ctx, size.length, func(ctx context.Context) { a.run(ctx, site) })
		if err != nil {
			return err
		}
		r.say("%-24s guild A got %v", a.name, &site.responses)
		seen.judge(r, a.name, base, size.measure)
	}
	return nil
}

// guilds is the guild file of both.
func (size neighbourSize) guilds(w io.Writer) error {
	return guildsWith(w, map[string]int{guildA: size.ledger, guildB: 1000})
}

// guildsWith is the guild file of guilds with so many wallets each, and as many
// rows of the ledger.
func guildsWith(w io.Writer, wallets map[string]int) error {
	var out bytes.Buffer
	flush := func() error {
		_, err := out.WriteTo(w)
		return err
	}
	for guild, n := range wallets {
		fmt.Fprintf(&out, `{"record":"guild","id":"%s"}`+"\n", guild)
		for i := range n {
			fmt.Fprintf(&out, `{"record":"wallet","guild_id":"%s","user_id":"%d","balance":1000}`+"\n", guild, member(i))
			if out.Len() > 64<<10 {
				if err := flush(); err != nil {
					return err
				}
			}
		}
	}
	return flush()
}

func member(i int) int { return 300000000000000000 + i }

// victim is guild B: a little of everything, all the time.
type victim struct {
	server *server
	tokens []string
	fresh  []string // tokens that the server has not seen yet
	turn   atomic.Int64
}

// seen is what B and the machinery saw during one stage.
type seen struct {
	calls, strangers tally
	asked, unready   int
}

// live runs B's calls for a while, beside whatever else does. It returns once
// both have ended.
func (b *victim) live(ctx context.Context, length time.Duration, beside func(context.Context)) (*seen, error) {
	stage, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	var all sync.WaitGroup
	var s seen
	for i := range 4 {
		all.Go(func() {
			c := &caller{address: b.server.HTTP}
			defer c.close()
			for n := i; pause(stage, 20*time.Millisecond); n++ {
				s.calls.add(c.send(ctx, b.call(n)))
			}
		})
	}
	all.Go(func() {
		c := &caller{address: b.server.HTTP}
		defer c.close()
		for len(b.fresh) > 0 && pause(stage, 500*time.Millisecond) {
			s.strangers.add(c.send(ctx, request("GET", "/me", b.fresh[0], nil)))
			b.fresh = b.fresh[1:]
		}
	})
	all.Go(func() {
		for pause(stage, 100*time.Millisecond) {
			s.asked++
			if !b.server.ready(ctx) {
				s.unready++
			}
		}
	})
	if beside != nil {
		all.Go(func() { beside(stage) })
	}
	all.Wait()
	return &s, ctx.Err()
}

// call is B's n-th request.
func (b *victim) call(n int) []byte {
	token := b.tokens[int(b.turn.Add(1))%len(b.tokens)]
	who := member(n % 1000)
	switch n % 5 {
	case 0:
		return request("POST", "/economy/adjust", token, fmt.Appendf(nil, `{"user_id":"%d","delta":1}`, who))
	case 1:
		return request("GET", "/economy/ledger?per_page=5", token, nil)
	case 2:
		return request("POST", "/cases", token, fmt.Appendf(nil, `{"user_id":"%d","moderator_id":"7","type":"note","reason":"drill"}`, who))
	default:
		return request("GET", fmt.Sprintf("/economy/wallet/%d", who), token, nil)
	}
}

// pause waits, and reports whether the stage still goes on after it.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// judge holds what was seen against the promises, and against what was seen
// without anybody beside when measure is set.
func (s *seen) judge(r *report, stage string, base *seen, measure bool) {
	p50, p99 := s.calls.at(0.5, ok), s.calls.at(0.99, ok)
	r.say("%-24s guild B: %d calls, p50 %.1f ms, p99 %.1f ms %v", stage, len(s.calls.all), ms(p50), ms(p99), &s.calls)
	r.hold(s.calls.count(failed) == 0, "%s: no call of guild B fails (%d of %d)", stage, s.calls.count(failed), len(s.calls.all))
	r.hold(s.calls.count(ok) > 0 && s.calls.count(ok) == len(s.calls.all), "%s: every call of guild B succeeds (%d of %d)", stage, s.calls.count(ok), len(s.calls.all))
	r.hold(s.strangers.count(ok) > 0 && s.strangers.count(ok) == len(s.strangers.all), "%s: tokens not seen before are recognised (%d of %d)", stage, s.strangers.count(ok), len(s.strangers.all))
	r.hold(s.asked > 0 && s.unready == 0, "%s: ready all the time (%d of %d)", stage, s.asked-s.unready, s.asked)
	if measure {
		limit := base.calls.at(0.99, ok)*3/2 + 20*time.Millisecond
		r.hold(p99 <= limit, "%s: p99 of guild B %.1f ms, at most %.1f", stage, ms(p99), ms(limit))
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// silentNames starts a name server that never answers. The server program sees
// it in place of the machine's own when it is started with the words returned
// in front.
func silentNames() (front []string, stop func(), err error) {
	address := "127.77.53.1"
	silent, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(address), Port: 53})
	if err != nil {
		return nil, nil, err
	}
	folder, err := os.MkdirTemp("", "guildhall-drill-")
	if err != nil {
		return nil, nil, err
	}
	stop = func() {
		silent.Close()
		os.RemoveAll(folder)
	}
	file := filepath.Join(folder, "resolv.conf")
	if err := os.WriteFile(file, []byte("nameserver "+address+"\n"), 0o644); err != nil {
		stop()
		return nil, nil, err
	}
	front = []string{"unshare", "--mount", "sh", "-c", `mount --bind "$0" /etc/resolv.conf && exec "$@"`, file}
	if out, err := exec.Command(front[0], append(front[1:], "true")...).CombinedOutput(); err != nil {
		stop()
		return nil, nil, fmt.Errorf("%w: %s", err, bytes.TrimSpace(out))
	}
	return front, stop, nil
}
