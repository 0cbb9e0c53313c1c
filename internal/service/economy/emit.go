package economy

import "guildhall/internal/outbound/event"

// emitting returns the steps of a statement that emit economy.balance_changed for each
// change. The event has the id of the ledger entry.
func emitting(guild string) string {
	return event.EmitDataSQL("moved", guild, "'economy.balance_changed'", `
			'{"user_id":"' || moved.user_id || '","balance":' || moved.is_now
			|| ',"previous_balance":' || moved.is_now - moved.delta || ',"delta":' || moved.delta
			|| ',"reason":' || coalesce(to_json(moved.reason)::text, 'null') || ',"reference":' || coalesce(to_json(moved.reference)::text, 'null')
			|| ',"ledger_entry_id":"' || moved.event_id || '","author_id":' || coalesce('"' || moved.author_id || '"', 'null') || '}'`)
}
