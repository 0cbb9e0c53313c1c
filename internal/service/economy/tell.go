package economy

import (
	"guildhall/internal/base/db"
	"guildhall/internal/outbound/event"
)

// telling are the CTEs that tell of each change.
func telling(guild string) string {
	return event.Telling(guild, "'economy.balance_changed'", db.With(`
			'{"id":"' || moved.event_id || '","type":"economy.balance_changed","timestamp":"'
			|| to_char(moved.updated_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') || '","guild_id":"' || :guild
			|| '","api_version":"v1","origin":' || moved.origin || ',"data":{"user_id":"' || moved.user_id || '","balance":' || moved.is_now
			|| ',"previous_balance":' || moved.is_now - moved.delta || ',"delta":' || moved.delta
			|| ',"reason":' || coalesce(to_json(moved.reason)::text, 'null') || ',"reference":' || coalesce(to_json(moved.reference)::text, 'null')
			|| ',"ledger_entry_id":"' || moved.id || '"}}'`, "guild", guild))
}
