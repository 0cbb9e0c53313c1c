package records_test

import (
	"fmt"
	"strings"
	"testing"

	"guildhall/internal/base/db/dbtest"
)

// However much past data a bot sends, no instant runs ahead of the clock: a copy reads again from
// 15 seconds before the newest instant that it has, and changes by others must not be earlier than
// that.
func TestWhatIsTakenInOfThePastDoesNotRunAheadOfTheClock(t *testing.T) {
	t.Parallel()
	bot := withTicket(t)
	const a, b = `{"record":"case","user_id":"42","moderator_id":"7","type":"note"`, `{"record":"ticket_message","ticket_id":"t","content":"x"`
	for range 6 {
		for _, record := range []string{a, b} {
			var list []string
			for i := range 500 {
				list = append(list, fmt.Sprintf(`%s,"created_at":"2020-01-02T03:%02d:%02dZ"}`, record, i/60, i%60))
			}
			bot.Do(t, "writeRecords", `{"tell":false,"records":[`+strings.Join(list, ",")+`]}`).Want(t, 200, "")
		}
	}
	for _, of := range []string{
		"max(updated_at) FROM cases", "max(updated_at) FROM tickets", "coalesce(max(last_case_at), now()) FROM guilds",
	} {
		if s := dbtest.Value[float64](t, bot.DB(), `SELECT extract(epoch FROM (SELECT `+of+`) - clock_timestamp())::float8`); s > 0.5 {
			t.Errorf("SELECT %s is %.1f s ahead of the clock", of, s)
		}
	}
}
