package event

import (
	"encoding/json"
	"time"
)

// Envelope is the part of a payload around an event's id, instant and data. It is the same for all
// events of one type and origin.
type Envelope struct{ head, middle string }

// instantLayout is the form of instants in payloads, truncated to the millisecond.
const instantLayout = "2006-01-02T15:04:05.000Z"

// NewEnvelope returns the envelope for events of a type and origin.
func NewEnvelope(by Origin, typ string) Envelope {
	return Envelope{
		head:   `","type":` + quote(typ) + `,"timestamp":"`,
		middle: `","guild_id":` + quote(by.GuildID) + `,"api_version":"v1","origin":` + by.JSON() + `,"data":`,
	}
}

// Payload returns the text that is signed and sent, byte for byte.
func (e Envelope) Payload(id string, at time.Time, data string) string {
	return `{"id":"` + id + e.head + at.UTC().Format(instantLayout) + e.middle + data + "}"
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic("event: a string: " + err.Error())
	}
	return string(b)
}
