package gen_test

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// ownLimits lists members whose limits differ from those of members with the same name in other
// schemas, each with the reason.
var ownLimits = map[string]string{
	"Guild.id":                                 "a guild's id is the chat platform's",
	"BotGuild.id":                              "a guild's id is the chat platform's",
	"RecordGuild.id":                           "a guild's id is the chat platform's",
	"GuildFileGuild.id":                        "a guild's id is the chat platform's",
	"WrittenRecord.id":                         "the id of an entry is its giveaway's and its member's",
	"BotStream.name":                           "a stream's name is part of a path",
	"WebhookDeliveryAttempt.number":            "it counts attempts",
	"GuildRecord.number":                       "the guild's later numbers need room below the largest integer",
	"BotWorkRefusalRequest.reason":             "a refusal is shown in a message that has other words",
	"WalletLeaderboardEntry.rank":              "a page of a leaderboard ends at the 10,000th",
	"LevelLeaderboardEntry.rank":               "a page of a leaderboard ends at the 10,000th",
	"CreateTicketMessageRequest.content":       "the chat platform takes 2,000 characters",
	"WebhookEndpoint.description":              "a label, and not a giveaway's text",
	"WebhookNotice.description":                "a label, and not a giveaway's text",
	"WebhookEndpointWithSecret.description":    "a label, and not a giveaway's text",
	"CreateWebhookEndpointRequest.description": "a label, and not a giveaway's text",
	"UpdateWebhookEndpointRequest.description": "a label, and not a giveaway's text",
	"Member.avatar_url":                        "what the platform shows is never refused: a longer address is kept as null",
	"NetworkHit.category":                      "a category of reports, and not of tickets",
	"GuildFileNetworkListing.category":         "a category of reports, and not of tickets",
	"Work.content":                             "the chat platform's own bound",
	"GuildFileMember.name":                     "what the platform shows is never refused: a longer name is cut",
	"RecordMember.name":                        "what the platform shows is never refused: a longer name is cut",
	"GuildRecord.name":                         "what the platform shows is never refused: a longer name is cut",
	"Attachment.name":                          "a file's name, and not a person's",
	"RecordAttachment.name":                    "a file's name, and not a person's",
	"Attachment.url":                           "an address of the platform, and not a receiver's",
	"RecordAttachment.url":                     "an address of the platform, and not a receiver's",
	"GuildRecord.entries":                      "0 takes the entries away",
	"RecordGiveawayEntry.entries":              "0 takes the entries away",
}

// Members with the same name have the same limits in all schemas, so a limit that is changed in one
// schema only is found.
func TestMembersOfOneNameHaveTheSameLimits(t *testing.T) {
	t.Parallel()
	limits := map[string]map[string][]string{} // places of each set of limits, by the member's name
	for name, ref := range document(t).Components.Schemas {
		for member, is := range ref.Value.Properties {
			if limits[member] == nil {
				limits[member] = map[string][]string{}
			}
			if is.Ref == "" && len(is.Value.Enum) == 0 {
				at := limitsOf(is.Value)
				limits[member][at] = append(limits[member][at], name+"."+member)
			}
		}
	}
	for _, member := range slices.Sorted(maps.Keys(limits)) {
		common := map[string][]string{}
		for at, places := range limits[member] {
			others := slices.DeleteFunc(slices.Clone(places), func(place string) bool { return ownLimits[place] != "" })
			if len(others) > 0 {
				common[at] = others
			}
		}
		if len(common) > 1 {
			t.Errorf("%s has different limits; where that is meant, ownLimits says why: %v", member, common)
		}
		for at, places := range limits[member] {
			for _, place := range places {
				if ownLimits[place] != "" && common[at] != nil {
					t.Errorf("%s has the limits of %v: it is no exception", place, common[at])
				}
			}
		}
	}
	for place := range ownLimits {
		schema, member, _ := strings.Cut(place, ".")
		if ref := document(t).Components.Schemas[schema]; ref == nil || ref.Value.Properties[member] == nil {
			t.Errorf("there is no %s", place)
		}
	}
}

func limitsOf(s *openapi3.Schema) string {
	text := fmt.Sprint(s.Type.Slice())
	if s.MaxLength != nil {
		text += fmt.Sprint(" maxLength ", *s.MaxLength)
	}
	if s.Min != nil {
		text += fmt.Sprintf(" minimum %.0f", *s.Min)
	}
	if s.Max != nil {
		text += fmt.Sprintf(" maximum %.0f", *s.Max)
	}
	return text
}

// columns lists the columns with a CHECK constraint, with the members that show them or filter by
// them.
var columns = map[string][]string{
	"cases.number":                  {"Case.number"},
	"cases.reason":                  {"Case.reason"},
	"cases.type":                    {"Case.type", "CaseChange.type", "CaseTypeFilter", "RecordCase.type", "GuildFileCase.type"},
	"cases.status":                  {"Case.status", "CaseChange.status", "CaseStatusFilter", "RecordCase.status", "GuildFileCase.status"},
	"cases.source":                  {"Case.source", "CaseChange.source", "RecordCase.source", "GuildFileCase.source"},
	"giveaway_draws.entry_count":    {"GiveawayDraw.entry_count"},
	"giveaway_draws.round":          {"GiveawayDraw.round"},
	"giveaway_entries.entries":      {"GiveawayEntry.entries"},
	"giveaways.description":         {"Giveaway.description"},
	"giveaways.entry_count":         {"Giveaway.entry_count"},
	"giveaways.post_problem":        {"Giveaway.post_problem"},
	"giveaways.prize":               {"Giveaway.prize"},
	"giveaways.source":              {"RecordGiveaway.source", "GuildFileGiveaway.source"},
	"giveaways.status":              {"Giveaway.status", "GiveawayStatusFilter", "GuildFileGiveaway.status"},
	"giveaways.winner_count":        {"Giveaway.winner_count"},
	"guild_settings.close_action":   {"TicketSettings.close_action", "GuildFileTickets.close_action"},
	"ledger_references.reference":   {"LedgerEntry.reference"},
	"levels.total_xp":               {"LevelRecord.total_xp"},
	"network_listings.severity":     {"NetworkHit.severity", "GuildFileNetworkListing.severity"},
	"network_listings.report_count": {"NetworkHit.report_count"},
	"network_listings.trust_score":  {"NetworkHit.trust_score"},
	"ticket_messages.author_type": {
		"TicketMessage.author_type", "RecordTicketMessage.author_type", "GuildFileTicketMessage.author_type",
	},
	"ticket_messages.kind":              {"TicketMessage.kind", "GuildFileTicketMessage.kind"},
	"tickets.priority":                  {"Ticket.priority", "TicketPriority", "RecordTicket.priority", "GuildFileTicket.priority"},
	"tickets.status":                    {"Ticket.status", "TicketStatusFilter", "RecordTicket.status", "GuildFileTicket.status"},
	"wallets.balance":                   {"Wallet.balance"},
	"xp_periods.kind":                   {"XpPeriodKind"},
	"webhook_deliveries.state":          {"WebhookDelivery.status", "WebhookDeliveryDetail.status", "WebhookDeliveryStatusFilter"},
	"webhook_deliveries.response_class": {"WebhookDeliveryResponseFilter"},
	"webhook_endpoints.delivery": {
		"WebhookEndpoint.delivery", "WebhookEndpointWithSecret.delivery", "CreateWebhookEndpointRequest.delivery",
	},
}

// notShown lists the tables and columns with a CHECK constraint that no member shows.
var notShown = []string{
	"api_tokens", "audit_log", "auth_epoch", "bot_keys", "bot_work", "chat_intents", "facts_turn", "guilds", "idempotency_keys",
	"oldest_program", "rank_indexes", "rank_requests", "secret_key_check", "webhook_hours", "webhook_schedule",
	"giveaway_draws.entries_hash", "giveaway_draws.seed", "giveaways.pot", "ticket_messages.internal", "webhook_deliveries.cause",
	"xp_periods.xp",
}

var (
	checkOfColumn = regexp.MustCompile(`(?:char_length|octet_length|length)\((\w+)\)|\(?\b(\w+) (?:=|>=|<=)`)
	lowest        = regexp.MustCompile(`>= (\d+)`)
	highest       = regexp.MustCompile(`<= '?(\d+)`)
	quotedValue   = regexp.MustCompile(`'([^']+)'::text`)
)

// The limits of the document equal the constraints of the database. Members with the same name have
// the same limits, so one of them is compared; lists of values are compared in every place.
func TestLimitsAreTheDatabases(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../migrations/schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	table, doc, seen := "", document(t), map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(line, "CREATE TABLE "); ok {
			table, _, _ = strings.Cut(name, " ")
		}
		_, check, ok := strings.Cut(line, " CHECK ")
		if !ok || strings.Contains(check, " NULL") { // a rule that involves several columns is not a limit
			continue
		}
		m := checkOfColumn.FindStringSubmatch(check)
		column := table + "."
		if m != nil {
			column += m[1] + m[2]
		}
		places := columns[column]
		if seen[column] = true; places == nil {
			if !slices.Contains(notShown, table) && !slices.Contains(notShown, column) {
				t.Errorf("%s has a CHECK: add it to columns or to notShown: %s", column, check)
			}
			continue
		}
		for _, place := range places {
			wantLimits(t, doc, place, strings.Contains(check, "char_length"), check)
		}
	}
	for column := range columns {
		if !seen[column] {
			t.Errorf("no CHECK of %s was found", column)
		}
	}
}

func wantLimits(t *testing.T, doc *openapi3.T, place string, length bool, check string) {
	t.Helper()
	name, member, nested := strings.Cut(place, ".")
	ref := doc.Components.Schemas[name]
	if ref != nil && nested {
		ref = ref.Value.Properties[member]
	}
	if ref == nil {
		t.Errorf("the document has no %s", place)
		return
	}
	s := ref.Value
	if values := quotedValue.FindAllStringSubmatch(check, -1); values != nil {
		var want, got []string
		for _, v := range values {
			want = append(want, v[1])
		}
		list := s.Enum
		if open, ok := s.Extensions["x-extensible-enum"].([]any); ok {
			list = open
		}
		for _, v := range list {
			got = append(got, fmt.Sprint(v))
		}
		slices.Sort(want)
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s lists %v, the database lets in %v", place, got, want)
		}
		return
	}
	low, high := s.Min, s.Max
	if length {
		low, high = nil, new(float64)
		if s.MaxLength != nil {
			*high = float64(*s.MaxLength)
		}
	}
	for bound, has := range map[*regexp.Regexp]*float64{lowest: low, highest: high} {
		m := bound.FindStringSubmatch(check)
		if m == nil || has == nil {
			continue
		}
		if want, err := strconv.ParseFloat(m[1], 64); err != nil || *has != want {
			t.Errorf("%s has the limit %.0f, the database %s", place, *has, m[0])
		}
	}
}
