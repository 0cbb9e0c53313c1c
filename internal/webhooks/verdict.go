package webhooks

import "time"

// The states of a delivery. Only delivered and failed are final, and a failed
// one can be redelivered.
const (
	statePending   = "pending"
	stateDelivered = "delivered"
	stateFailed    = "failed"
	stateHeld      = "held"
)

// Why the service disables an endpoint by itself.
const (
	reasonGone    = "gone"
	reasonFailing = "failing"
	reasonAddress = "address_not_allowed"
)

// verdict is what becomes of a delivery and its endpoint after an attempt, or
// after there was none to make.
type verdict struct {
	State   string
	Pause   time.Duration // until the next attempt, if pending
	Step    int
	Logged  bool // counts as an attempt and is written to the log
	Outcome outcome
	Disable string // the endpoint, for this reason

	Healthy bool          // the endpoint works
	Failing bool          // it does not
	Blocks  bool          // and this counts towards a block
	Refused bool          // because its address is not allowed
	Quiet   time.Duration // it asked to be left alone for so long
}

// judge applies the table of outcomes to an attempt that was made.
func (s Schedule) judge(c claimed, a answer, now time.Time, jitter float64) verdict {
	v := verdict{State: statePending, Step: c.Step + 1, Logged: true, Outcome: classify(a.Status, a.Err)}
	switch v.Outcome {
	case delivered:
		v.State, v.Healthy = stateDelivered, true
		return v
	case gone:
		v.State, v.Disable = stateHeld, reasonGone
		return v
	case throttled:
		v.Failing = true
		v.Quiet, _ = retryAfter(a.RetryAfter, now)
		v.Blocks = v.Quiet == 0
	case badAddress:
		v.Failing, v.Blocks, v.Refused = true, true, true
	default:
		v.Failing, v.Blocks = true, true
	}
	s.again(&v, jitter)
	return v
}

// again puts the next attempt on the schedule, not before the receiver wants
// it, or gives up after the last.
func (s Schedule) again(v *verdict, jitter float64) {
	pause, left := s.next(v.Step, jitter)
	if !left {
		v.State = stateFailed
		return
	}
	v.Pause = max(pause, v.Quiet)
}

// unsendable judges a delivery that could not be sent for a reason of our own.
// It says nothing of the endpoint's health and gives up soon, so that it is seen.
func (s Schedule) unsendable(c claimed, o outcome, jitter float64) verdict {
	v := verdict{State: statePending, Step: c.Step + 1, Logged: true, Outcome: o}
	if o == badPayload || o == noEndpoint || v.Step >= poisonLimit {
		v.State = stateFailed
		return v
	}
	s.again(&v, jitter)
	return v
}

// health is what a batch of verdicts says of one endpoint, in their order.
type health struct {
	GuildID    string `json:"guild_id"`
	EndpointID string `json:"endpoint_id"`
	Reset      bool   `json:"reset"`    // it worked, before the failures counted here
	Failed     int    `json:"failed"`   // failures since, of any kind
	Blocking   int    `json:"blocking"` // of these, those that count towards a block
	Refused    int    `json:"refused"`  // of these, because of the address
	QuietMs    int64  `json:"quiet_ms"`
}

// add takes the next verdict into account.
func (h *health) add(v verdict) {
	switch {
	case v.Healthy:
		*h = health{GuildID: h.GuildID, EndpointID: h.EndpointID, Reset: true, QuietMs: h.QuietMs}
	case v.Failing:
		h.Failed++
		if v.Blocks {
			h.Blocking++
		}
		if v.Refused {
			h.Refused++
		}
		h.QuietMs = max(h.QuietMs, v.Quiet.Milliseconds())
	}
}
