package chat

import "time"

// Later makes it as much later for what the client remembers of refusals.
func (d *Discord) Later(by time.Duration) {
	d.breaker.now = func() time.Time { return time.Now().Add(by) }
}
