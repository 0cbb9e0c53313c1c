// Package egresstest provides a DNS server and a webhook receiver for tests. The test sets how they
// respond.
package egresstest

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"strings"
	"testing"
)

// Loopback is an allowlist with which webhooks may be sent to this machine.
var Loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// Answer is the DNS server's response for a name.
type Answer struct {
	addrs  []netip.Addr
	code   uint16
	silent bool
}

// Responses other than addresses.
var (
	NoSuchName = Answer{code: 3}
	ServFail   = Answer{code: 2}
	NoData     = Answer{}             // the name exists but has no address
	Silent     = Answer{silent: true} // no response at all
)

// Addresses returns the response with the given addresses.
func Addresses(addrs ...string) Answer {
	var a Answer
	for _, s := range addrs {
		a.addrs = append(a.addrs, netip.MustParseAddr(s))
	}
	return a
}

// NameServer starts a DNS server and returns a resolver that uses it. The server calls zone with
// each name that is looked up, in lower case without the final dot, and whether IPv6 addresses are
// wanted. Responses have a TTL of 0. The server stops when the test ends.
func NameServer(t testing.TB, zone func(name string, v6 bool) Answer) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	go func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if reply := answer(buf[:n], zone); reply != nil {
				_, _ = conn.WriteTo(reply, from)
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

const typeA, typeAAAA = 1, 28

// answer responds to a query for A or AAAA records.
func answer(query []byte, zone func(string, bool) Answer) []byte {
	if len(query) < 12 {
		return nil
	}
	end, labels := 12, []string{}
	for end < len(query) && query[end] != 0 {
		size := int(query[end])
		labels = append(labels, string(query[end+1:end+1+size]))
		end += 1 + size
	}
	kind := binary.BigEndian.Uint16(query[end+1:])
	said := zone(strings.ToLower(strings.Join(labels, ".")), kind == typeAAAA)
	if said.silent {
		return nil
	}
	var records []byte
	count := uint16(0)
	for _, a := range said.addrs {
		if kind == typeA && !a.Is4() || kind == typeAAAA && a.Is4() || kind != typeA && kind != typeAAAA {
			continue
		}
		records = append(records, 0xc0, 12) // a pointer to the name in the question
		records = binary.BigEndian.AppendUint16(records, kind)
		records = append(records, 0, 1, 0, 0, 0, 0)
		records = binary.BigEndian.AppendUint16(records, uint16(a.BitLen()/8))
		records = append(records, a.AsSlice()...)
		count++
	}
	out := binary.BigEndian.AppendUint16(append([]byte{}, query[:2]...), 0x8180|said.code)
	out = append(out, 0, 1)
	out = binary.BigEndian.AppendUint16(out, count)
	out = append(out, 0, 0, 0, 0)
	return append(append(out, query[12:end+5]...), records...)
}
