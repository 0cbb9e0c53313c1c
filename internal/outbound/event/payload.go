package event

import (
	"encoding/json"
	"time"
)

// Envelope is what stands around an event's id, instant and data in its payload: the
// same for all events of a type that have one origin.
type Envelope struct{ head, middle string }

// instantLayout is an instant as payloads show it, cut to the millisecond.
const instantLayout = "2006-01-02T15:04:05.000Z"

// NewEnvelope returns the envelope of events of a type.
func NewEnvelope(by Origin, typ string) Envelope {
	return Envelope{
		head:   `","type":` + quote(typ) + `,"timestamp":"`,
		middle: `","guild_id":` + quote(by.GuildID) + `,"api_version":"v1","origin":` + by.JSON() + `,"data":`,
	}
}

// Payload is the text that is sent, and signed, byte for byte.
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
