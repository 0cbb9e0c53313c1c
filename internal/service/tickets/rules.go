package tickets

import "guildhall/internal/base/fault"

// The states of a ticket and the kinds of entries in a transcript.
const (
	open   = "open"
	closed = "closed"

	kindMessage = "message"
	kindNote    = "note"
	kindClose   = "close"
	kindClaim   = "claim"
	kindAssign  = "assign"
	kindReopen  = "reopen"

	byStaff  = "staff"
	bySystem = "system"

	normal = "normal" // the priority of a ticket that has none of its own
)

// mayClose is Refused unless the ticket is open and has a reason where the
// guild wants one. The state counts first.
func mayClose(t row, reason *string, p policy) error {
	if t.Status == closed {
		return fault.New(fault.Refused, "ticket_not_open", "Ticket %d is closed already: there is nothing left to do.", t.Number)
	}
	if err := mustBeOpen(t); err != nil {
		return err
	}
	if p.RequireReason && reason == nil {
		return fault.New(fault.Refused, "close_reason_required", "This guild requires a reason to close a ticket: send {\"reason\": \"...\"}.")
	}
	return nil
}

// mustBeOpen is Refused unless the ticket is open.
func mustBeOpen(t row) error {
	if t.Status != open {
		return fault.New(fault.Refused, "ticket_not_open", "Ticket %d is %s; reopen it first.", t.Number, t.Status)
	}
	return nil
}

// channelInUse refuses a second open ticket in a channel.
func channelInUse(channel string, number int64) error {
	return fault.New(fault.Refused, "channel_in_use", "Channel %s is that of ticket %d, which is open; close that ticket first.", channel, number)
}

// mayReopen is Refused unless the ticket is closed.
func mayReopen(t row) error {
	if t.Status != closed {
		return fault.New(fault.Refused, "ticket_not_closed", "Ticket %d is %s.", t.Number, t.Status)
	}
	return nil
}

// mayClaim is Refused unless the ticket is open and nobody else's.
func mayClaim(t row, user string) error {
	if err := mustBeOpen(t); err != nil {
		return err
	}
	if t.ClaimedByID != nil && *t.ClaimedByID != user {
		return fault.New(fault.Refused, "ticket_already_claimed", "Ticket %d is claimed by %s; assign gives it to another.", t.Number, *t.ClaimedByID)
	}
	return nil
}

// mayMessage is Refused unless a message can be delivered. The state counts
// first.
func mayMessage(t row) error {
	if err := mustBeOpen(t); err != nil {
		return err
	}
	if t.ChannelID == nil {
		return fault.New(fault.Refused, "no_ticket_channel", "Ticket %d has no channel to post to; only internal notes can be added.", t.Number)
	}
	return nil
}

// or is *v, or instead when there is none.
func or[T any](v *T, instead T) T {
	if v == nil {
		return instead
	}
	return *v
}
