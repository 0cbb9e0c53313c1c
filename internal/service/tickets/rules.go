package tickets

import "guildhall/internal/base/fault"

// The statuses of a ticket and the kinds of transcript entries.
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

	normal = "normal" // the priority of a ticket without one of its own
)

// mayClose returns a Refused fault unless the ticket is open and, if the guild requires one, there
// is a reason. The status is checked first.
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

// mustBeOpen returns a Refused fault unless the ticket is open.
func mustBeOpen(t row) error {
	if t.Status != open {
		return fault.New(fault.Refused, "ticket_not_open", "Ticket %d is %s; reopen it first.", t.Number, t.Status)
	}
	return nil
}

// channelInUse returns the refusal of a second open ticket in a channel.
func channelInUse(channel string, number int64) error {
	return fault.New(fault.Refused, "channel_in_use", "Channel %s is that of ticket %d, which is open; close that ticket first.", channel, number)
}

// mayReopen returns a Refused fault unless the ticket is closed.
func mayReopen(t row) error {
	if t.Status != closed {
		return fault.New(fault.Refused, "ticket_not_closed", "Ticket %d is %s.", t.Number, t.Status)
	}
	return nil
}

// mayClaim returns a Refused fault unless the ticket is open and not claimed by somebody else.
func mayClaim(t row, user string) error {
	if err := mustBeOpen(t); err != nil {
		return err
	}
	if t.ClaimedByID != nil && *t.ClaimedByID != user {
		return fault.New(fault.Refused, "ticket_already_claimed", "Ticket %d is claimed by %s; assign gives it to another.", t.Number, *t.ClaimedByID)
	}
	return nil
}

// mayMessage returns a Refused fault unless a message can be posted. The status is checked first.
func mayMessage(t row) error {
	if err := mustBeOpen(t); err != nil {
		return err
	}
	if t.ChannelID == nil {
		return fault.New(fault.Refused, "no_ticket_channel", "Ticket %d has no channel to post to; only internal notes can be added.", t.Number)
	}
	return nil
}

// or returns *v, or instead if v is nil.
func or[T any](v *T, instead T) T {
	if v == nil {
		return instead
	}
	return *v
}
