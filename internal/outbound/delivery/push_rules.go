package delivery

import "time"

// The states of a delivery. Only delivered and failed are final, and a failed delivery can be
// redelivered.
const (
	StatePending   = "pending"
	StateDelivered = "delivered"
	StateFailed    = "failed"
	StateHeld      = "held"
)

// The reasons for which the service disables an endpoint.
const (
	reasonGone    = "gone"
	reasonFailing = "failing"
	reasonAddress = "address_not_allowed"

	reasonUnfetched = "not_fetched"

	// ReasonRemoved means that the guild is being removed; the endpoint itself has no fault.
	ReasonRemoved = "guild_removed"
)

// SwitchedOff is the SQL condition for endpoints that the service has disabled and that need
// attention.
const SwitchedOff = `NOT enabled AND disabled_reason <> '` + ReasonRemoved + `'`

// Failing is the SQL condition for schedules of endpoints whose last attempt has failed.
const Failing = `failing_since IS NOT NULL AND disposition = 'send'`

// How an endpoint gets its events: the service sends them, or stores them until the owner fetches
// them.
const (
	Push = "push"
	Pull = "pull"
)

const (
	// After blockAfter failures in a row, an endpoint is blocked: for firstBlock, then twice as
	// long each time, up to longestBlock. Then one attempt decides.
	blockAfter   = 5
	firstBlock   = 30 * time.Second
	longestBlock = 15 * time.Minute

	// After only failures for disableAfter, between the first failure and the last one, an endpoint
	// is disabled.
	disableAfter = 5 * 24 * time.Hour

	// After maxRefusals attempts at an address that is not allowed, with a minimum time between two
	// counted attempts, the endpoint is disabled: a single wrong answer of the endpoint's name
	// server makes many attempts fail at once. After maxPoisoned tries, a delivery that cannot be
	// sent at all fails.
	maxRefusals   = 3
	refusalsApart = 5 * time.Minute
	maxPoisoned   = 3

	// unreadablePause is how long an endpoint whose secret cannot be decrypted is paused. Nothing
	// is lost meanwhile, and the log tells the operator.
	unreadablePause = time.Minute

	errorExpired = "expired"
)

// decision is what follows from an attempt, or from a delivery without an attempt: the new state of
// the delivery, and what the result says of its endpoint.
type decision struct {
	State   string
	Pause   time.Duration // until the next attempt, if the state is pending
	Step    int
	Logged  bool // counts as an attempt and is written to the log
	Outcome outcome
	Error   string // reason of the failure, if there was no attempt

	Disable string        // reason to disable the endpoint; empty if it stays enabled
	Healthy bool          // the endpoint works
	Failing bool          // the endpoint does not work
	Blocks  bool          // the failure counts towards a block
	Refused bool          // the address is not allowed
	Quiet   time.Duration // how long to pause the endpoint
}

// judge returns the decision on an attempt by its outcome.
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

// again schedules the next attempt, not before the end of the receiver's pause, or gives up after
// the last attempt.
func (s Schedule) again(v decision, jitter float64) decision {
	pause, left := s.next(v.Step, jitter)
	if !left {
		v.State = StateFailed
		return v
	}
	v.Pause = max(pause, v.Quiet)
	return v
}

// health is the health of an endpoint: the columns of webhook_schedule that attempts change.
type health struct {
	Failures     int        `db:"failures" json:"failures"`
	Refusals     int        `db:"refusals" json:"refusals"`
	RefusedAt    *time.Time `db:"refused_at" json:"refused_at"` // when a refusal was last counted
	Blocks       int        `db:"blocks" json:"blocks"`
	BlockedUntil *time.Time `db:"blocked_until" json:"blocked_until"`
	QuietUntil   *time.Time `db:"quiet_until" json:"quiet_until"`
	FailingSince *time.Time `db:"failing_since" json:"failing_since"`
	Attempts     int        `db:"failed_attempts" json:"failed_attempts"` // failed attempts since FailingSince
	Warned       int        `db:"warned" json:"warned"`
	Reported     bool       `db:"reported" json:"reported"` // webhook.failing was emitted since FailingSince
}

// well reports whether a success would change nothing.
func (h health) well() bool {
	return h == health{}
}

// notBefore returns when the next send to the endpoint may start; the zero time means now.
func (h health) notBefore() time.Time {
	var t time.Time
	for _, until := range []*time.Time{h.BlockedUntil, h.QuietUntil} {
		if until != nil && until.After(t) {
			t = *until
		}
	}
	return t
}

// after returns the health after a decision at the given instant. A success makes the endpoint
// healthy, whatever was before, with one exception: if the receiver asked for a pause while the
// successful attempt was already being sent, the pause stays, because the attempt did not know of
// it. knew is the pause that the claim of the attempt knew.
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

// blocked counts one more failure in a row. From the blockAfter-th failure on, each failure blocks
// the endpoint, unless the endpoint is already blocked: sends that had started before the block do
// not make it longer.
func (h health) blocked(at time.Time) health {
	h.Failures++
	if h.Failures < blockAfter || h.BlockedUntil != nil && h.BlockedUntil.After(at) {
		return h
	}
	until := at.Add(min(firstBlock<<min(h.Blocks, 10), longestBlock))
	h.BlockedUntil, h.Blocks = &until, h.Blocks+1
	return h
}

// warning returns how much of disableAfter has passed, in percent: 0, 50 or 90.
func warning(failing time.Duration) int {
	switch {
	case failing >= disableAfter*9/10:
		return 90
	case failing >= disableAfter/2:
		return 50
	}
	return 0
}

// disable returns the reason to disable the endpoint now; empty if there is none.
func (h health) disable(at time.Time) string {
	switch {
	case h.Refusals >= maxRefusals:
		return reasonAddress
	case h.FailingSince != nil && at.Sub(*h.FailingSince) >= disableAfter:
		return reasonFailing
	}
	return ""
}
