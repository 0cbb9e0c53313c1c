package event

import (
	"encoding/json"
	"time"
)

// Envelope is what stands around an event's instant and data in its payload:
//
//	Head  instant  Middle  data  Tail
type Envelope struct{ Head, Middle string }

// Tail ends a payload.
const Tail = "}"

// stamp is an instant as payloads show it, cut to the millisecond.
const stamp = "2006-01-02T15:04:05.000Z"

// NewEnvelope returns the envelope of an event with that id.
func NewEnvelope(by Origin, id, typ string) Envelope {
	return Envelope{
		Head:   `{"id":` + quote(id) + `,"type":` + quote(typ) + `,"timestamp":"`,
		Middle: `","guild_id":` + quote(by.GuildID) + `,"api_version":"v1","origin":` + by.JSON() + `,"data":`,
	}
}

// Payload is the text that is sent, and signed, byte for byte.
func (e Envelope) Payload(at time.Time, data string) string {
	return e.Head + at.UTC().Format(stamp) + e.Middle + data + Tail
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic("event: a string: " + err.Error())
	}
	return string(b)
}

// Stamp is the SQL expression that shows the instant of an expression as
// Envelope.Payload does.
func Stamp(at string) string {
	return `to_char(` + at + ` AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`
}
