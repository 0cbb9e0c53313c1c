package convert

import (
	"testing"

	"guildhall/internal/contract"
)

// The constants of the converters are equal to the limits in the API document for their records.
func TestLimitsAreTheContracts(t *testing.T) {
	t.Parallel()
	doc, err := contract.Document()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		schema, member string
		is             float64
	}{
		{"GuildFileTicket", "id", maxID},
		{"GuildFileTicketMessage", "content", maxContent},
		{"GuildFileWallet", "balance", maxWhole},
		{"GuildRecord", "number", maxNumber},
		{"GuildFileGiveaway", "winner_count", maxWinners},
	} {
		s := doc.Components.Schemas[c.schema].Value.Properties[c.member].Value
		limit := s.Max
		if s.MaxLength != nil {
			length := float64(*s.MaxLength)
			limit = &length
		}
		if limit == nil || *limit != c.is {
			t.Errorf("%s.%s has the limit %v, convert has %.0f", c.schema, c.member, limit, c.is)
		}
	}
}
