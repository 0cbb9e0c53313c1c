// Package usage counts API requests for the managers of a guild: by token, operation and class of
// status, by client address, and each refusal. It counts in memory and writes every ten seconds, so
// a request costs only an addition; a crash loses at most ten seconds.
package usage

import (
	"net/netip"
	"sync"
	"time"
	"unicode/utf8"

	"guildhall/internal/base/output"
)

const (
	// maxKept is how many refusals of a guild are kept.
	maxKept = 1000
	// maxPending bounds the refusals of one guild between two flushes, maxGuilds the number of
	// guilds with refusals.
	maxPending = 200
	maxGuilds  = 2000
	// maxMessage is how many characters of a refusal's message are stored. maxMessages bounds the
	// bytes of all messages between two flushes; beyond it, refusals are stored without message.
	maxMessage  = 300
	maxMessages = 16 << 20
	// maxCounters bounds the entries of each counter between two flushes.
	maxCounters = 50_000
	// maxAddresses bounds the addresses of one token between two flushes.
	maxAddresses = 50
)

// Request is a finished request, with the properties that are counted.
type Request struct {
	Guild, Token string
	Ended        bool   // the token was revoked or had expired
	Operation    string // empty if the request matched no operation
	RequestID    string
	Status       int
	Code         string // the error's code; empty for a success
	Message      string // the error's message, as the caller got it
	Scope        string // the scope that the error requires; empty if none
	From         netip.Addr
	At           time.Time
}

type hourKey struct {
	guild, token, operation string
	hour                    int64
	class                   uint8
}

type addressKey struct {
	guild, token string
	day          int64
	address      netip.Prefix
}

type seen struct {
	requests int64
	at       time.Time
}

// Counter counts requests. It is safe for concurrent use.
type Counter struct {
	mu sync.Mutex // guards the fields below
	pending
	untrimmed map[string]int // refusals written for each guild since it was last trimmed
}

// pending holds the counters since the last flush.
type pending struct {
	hours     map[hourKey]int64
	addresses map[addressKey]seen
	perToken  map[string]int // number of addresses by token
	refusals  map[string][]Request
	messages  int // bytes of the refusals' messages

	ended   map[endedKey]endedUse
	endedOf map[string]int // number of rows for ended tokens, by guild
}

// NewCounter returns an empty Counter.
func NewCounter() *Counter {
	return &Counter{pending: empty(), untrimmed: map[string]int{}}
}

func empty() pending {
	return pending{
		hours: map[hourKey]int64{}, addresses: map[addressKey]seen{}, perToken: map[string]int{}, refusals: map[string][]Request{},
		ended: map[endedKey]endedUse{}, endedOf: map[string]int{},
	}
}

// Count counts a request. Requests without a guild are not counted.
func (c *Counter) Count(r Request) {
	if r.Guild == "" {
		return
	}
	if r.Ended {
		c.countEnded(r)
		return
	}
	if r.Operation == "" {
		r.Operation = "unknown"
	}
	hour := hourKey{r.Guild, r.Token, r.Operation, r.At.Unix() / 3600, uint8(r.Status / 100)}
	place := addressKey{guild: r.Guild, token: r.Token, day: r.At.Unix() / 86400, address: placeOf(r.From)}
	if r.Status >= 400 {
		r.Message = shortened(output.Visible(r.Message))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if n, ok := c.hours[hour]; ok || len(c.hours) < maxCounters {
		c.hours[hour] = n + 1
	}
	if s, ok := c.addresses[place]; ok {
		c.addresses[place] = seen{s.requests + 1, r.At}
	} else if r.From.IsValid() && len(c.addresses) < maxCounters && c.perToken[r.Token] < maxAddresses {
		c.perToken[r.Token]++
		c.addresses[place] = seen{1, r.At}
	}
	if r.Status >= 400 {
		c.refused(r)
	}
}

// countEnded counts the use of an ended token.
func (c *Counter) countEnded(r Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	use := endedUse{1, r.At, r.At}
	c.addEnded(endedKey{guild: r.Guild, token: r.Token}, use)
	if place := placeOf(r.From); place.IsValid() {
		c.addEnded(endedKey{r.Guild, r.Token, place}, use)
	}
}

func (p *pending) refused(r Request) {
	list, ok := p.refusals[r.Guild]
	if !ok && len(p.refusals) >= maxGuilds {
		return
	}
	if len(list) >= maxPending { // newer refusals replace older ones
		p.messages -= len(list[0].Message)
		copy(list, list[1:])
		list = list[:maxPending-1]
	}
	if p.messages+len(r.Message) > maxMessages {
		r.Message = ""
	}
	p.messages += len(r.Message)
	p.refusals[r.Guild] = append(list, r)
}

// shortened cuts a message to maxMessage characters.
func shortened(message string) string {
	if utf8.RuneCountInString(message) <= maxMessage {
		return message
	}
	return string([]rune(message)[:maxMessage-1]) + "…"
}

// placeOf returns the prefix under which an address is counted: of IPv6 the /64, which belongs to
// one customer.
func placeOf(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := a.BitLen()
	if a.Is6() {
		bits = 64
	}
	p, err := a.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return p
}

// take returns the counters and starts again at zero.
func (c *Counter) take() pending {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.pending
	c.pending = empty()
	return p
}

// restore adds counters that could not be written to those counted since.
func (c *Counter) restore(p pending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, n := range p.hours {
		if _, ok := c.hours[k]; ok || len(c.hours) < maxCounters {
			c.hours[k] += n
		}
	}
	for k, s := range p.addresses {
		if now, ok := c.addresses[k]; ok {
			c.addresses[k] = seen{now.requests + s.requests, now.at}
		} else if len(c.addresses) < maxCounters {
			c.perToken[k.token]++
			c.addresses[k] = s
		}
	}
	for k, n := range p.ended {
		c.addEnded(k, n)
	}
	for guild, list := range p.refusals {
		if _, ok := c.refusals[guild]; !ok && len(c.refusals) >= maxGuilds {
			continue
		}
		list = append(list, c.refusals[guild]...)
		c.refusals[guild] = list[max(0, len(list)-maxPending):]
	}
	c.messages = 0
	for _, list := range c.refusals {
		for i := range list {
			if c.messages+len(list[i].Message) > maxMessages {
				list[i].Message = ""
			}
			c.messages += len(list[i].Message)
		}
	}
}
