package delivery

import "time"

// The states of a delivery. Only delivered and failed are final, and a failed
// one can be redelivered.
const (
	StatePending   = "pending"
	StateDelivered = "delivered"
	StateFailed    = "failed"
	StateHeld      = "held"
)

// Why the service disables an endpoint by itself.
const (
	reasonGone    = "gone"
	reasonFailing = "failing"
	reasonAddress = "address_not_allowed"

	reasonUnfetched = "not_fetched"

	// ReasonRemoved is that its guild leaves, which is no trouble of the endpoint.
	ReasonRemoved = "guild_removed"
)

// SwitchedOff is the condition of endpoints that the service has disabled, and at which
// somebody should look.
const SwitchedOff = `NOT enabled AND disabled_reason <> '` + ReasonRemoved + `'`

// How an endpoint gets its events: they are sent to it, or kept until its owner
// fetches them.
const (
	Push = "push"
	Pull = "pull"
)

const (
	// blockAfter failures in a row an endpoint is left alone for a while:
	// firstBlock, doubling to longestBlock. Then one attempt decides.
	blockAfter   = 5
	firstBlock   = 30 * time.Second
	longestBlock = 15 * time.Minute

	// disableAfter nothing but failures an endpoint is switched off. The first
	// failure and the last make two that lie so far apart.
	disableAfter = 5 * 24 * time.Hour

	// maxRefusals attempts in a row at an address that is not allowed, each so long
	// after the one before, switch the endpoint off: one wrong answer of its name
	// server refuses many attempts at once. maxPoisoned tries give up on a delivery
	// that cannot be sent at all.
	maxRefusals   = 3
	refusalsApart = 5 * time.Minute
	maxPoisoned   = 3

	// unreadablePause is how long an endpoint whose secret cannot be opened is
	// left alone. Nothing is lost meanwhile, and the operator hears of it.
	unreadablePause = time.Minute

	errorExpired = "expired"
)

// decision is what becomes of a delivery after an attempt, or after there was
// none to make, and what that says of its endpoint.
type decision struct {
	State   string
	Pause   time.Duration // until the next attempt, if pending
	Step    int
	Logged  bool // counts as an attempt and is written to the log
	Outcome outcome
	Error   string // why it failed, where no attempt says it

	Disable string        // the endpoint, for this reason
	Healthy bool          // the endpoint works
	Failing bool          // it does not
	Blocks  bool          // and this counts towards a block
	Refused bool          // because its address is not allowed
	Quiet   time.Duration // leave the endpoint alone for so long
}

// judge applies the table of outcomes to an attempt that was made.
func (s Schedule) judge(step int, o outcome, wantsPause time.Duration, jitter float64) decision {
	v := decision{State: StatePending, Step: step + 1, Logged: true, Outcome: o}
	switch o {
	case delivered:
		v.State, v.Healthy = StateDelivered, true
		return v
	case gone:
		v.State, v.Disable = StateHeld, reasonGone
		return v
	case badPayload:
		v.State = StateFailed
		return v
	case internal:
		if v.Step < maxPoisoned {
			return s.again(v, jitter)
		}
		v.State = StateFailed
		return v
	case throttled:
		v.Failing, v.Quiet = true, wantsPause
		v.Blocks = v.Quiet == 0
	case badAddress:
		v.Failing, v.Blocks, v.Refused = true, true, true
	default:
		v.Failing, v.Blocks = true, true
	}
	return s.again(v, jitter)
}

// again puts the next attempt on the schedule, not before the receiver wants
// it, or gives up after the last.
func (s Schedule) again(v decision, jitter float64) decision {
	pause, left := s.next(v.Step, jitter)
	if !left {
		v.State = StateFailed
		return v
	}
	v.Pause = max(pause, v.Quiet)
	return v
}

// health is what is known of an endpoint: the columns of webhook_schedule that
// attempts change.
type health struct {
	Failures     int        `db:"failures" json:"failures"`
	Refusals     int        `db:"refusals" json:"refusals"`
	RefusedAt    *time.Time `db:"refused_at" json:"refused_at"` // last counted
	Blocks       int        `db:"blocks" json:"blocks"`
	BlockedUntil *time.Time `db:"blocked_until" json:"blocked_until"`
	QuietUntil   *time.Time `db:"quiet_until" json:"quiet_until"`
	FailingSince *time.Time `db:"failing_since" json:"failing_since"`
	Attempts     int        `db:"failed_attempts" json:"failed_attempts"` // failed since FailingSince
	Warned       int        `db:"warned" json:"warned"`
	Reported     bool       `db:"reported" json:"reported"` // webhook.failing was emitted since FailingSince
}

// well reports whether a success would change nothing.
func (h health) well() bool {
	return h == health{}
}

// notBefore is when the endpoint may be called again, the zero time if now.
func (h health) notBefore() time.Time {
	var t time.Time
	for _, until := range []*time.Time{h.BlockedUntil, h.QuietUntil} {
		if until != nil && until.After(t) {
			t = *until
		}
	}
	return t
}

// after is the health after a decision at the given instant. A success makes the
// endpoint well, whatever went before; only a quiet time that the receiver asked
// for while that attempt was already under way stays: the attempt knew nothing
// of it. knew is the quiet time that the attempt's claim saw.
func (h health) after(v decision, at time.Time, knew *time.Time) health {
	switch {
	case v.Healthy:
		if h.QuietUntil != nil && h.QuietUntil.After(at) && (knew == nil || !knew.Equal(*h.QuietUntil)) {
			return health{QuietUntil: h.QuietUntil}
		}
		return health{}
	case v.Failing:
		if h.FailingSince == nil {
			h.FailingSince = &at
		}
		h.Attempts++
		switch {
		case !v.Refused:
			h.Refusals, h.RefusedAt = 0, nil
		case h.RefusedAt == nil || at.Sub(*h.RefusedAt) >= refusalsApart:
			h.Refusals, h.RefusedAt = h.Refusals+1, &at
		}
		if v.Blocks {
			h = h.blocked(at)
		}
		h.Warned = warning(at.Sub(*h.FailingSince))
	}
	if v.Quiet > 0 {
		if until := at.Add(v.Quiet); h.QuietUntil == nil || until.After(*h.QuietUntil) {
			h.QuietUntil = &until
		}
	}
	return h
}

// blocked counts one more failure in a row. From the blockAfter-th on each one
// blocks the endpoint, unless it is blocked: what was under way when the block
// began does not lengthen it.
func (h health) blocked(at time.Time) health {
	h.Failures++
	if h.Failures < blockAfter || h.BlockedUntil != nil && h.BlockedUntil.After(at) {
		return h
	}
	until := at.Add(min(firstBlock<<min(h.Blocks, 10), longestBlock))
	h.BlockedUntil, h.Blocks = &until, h.Blocks+1
	return h
}

// warning is how much of the way to being disabled is gone, in percent: 0, 50 or 90.
func warning(failing time.Duration) int {
	switch {
	case failing >= disableAfter*9/10:
		return 90
	case failing >= disableAfter/2:
		return 50
	}
	return 0
}

// disable is why the endpoint is to be disabled now, if it is.
func (h health) disable(at time.Time) string {
	switch {
	case h.Refusals >= maxRefusals:
		return reasonAddress
	case h.FailingSince != nil && at.Sub(*h.FailingSince) >= disableAfter:
		return reasonFailing
	}
	return ""
}
