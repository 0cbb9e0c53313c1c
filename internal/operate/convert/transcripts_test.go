package convert

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
)

// ticketToolMessage is a message as Ticket Tool's pages have it.
func ticketToolMessage(id, author string, bot bool, content string) string {
	return fmt.Sprintf(`{"id":%q,"user_id":%q,"bot":%v,"created":1706411114500,"content":%q,"attachments":[],"embeds":[]}`,
		id, author, bot, content)
}

// ticketParts are the assignments of a page of Ticket Tool, with their data as base64.
func ticketParts(server string, messages ...string) [3]string {
	in64 := func(s string) string { return `"` + base64.StdEncoding.EncodeToString([]byte(s)) + `"` }
	return [3]string{
		"let channel = " + in64(`{"name":"ticket-0018","id":"1201000000000000000"}`), "let server = " + in64(server),
		"let messages = " + in64("["+strings.Join(messages, ",")+"]"),
	}
}

// ticketPage is a page of Ticket Tool.
func ticketPage(server string, messages ...string) string {
	parts := ticketParts(server, messages...)
	return "<Base-Transcript>\n<script>" + strings.Join(parts[:], ";") + ";window.Convert(messages, channel, server)</script>"
}

func TestThePartsOfATicketToolPageStandInAnyOrder(t *testing.T) {
	t.Parallel()
	server, message := `{"id":"`+g1+`"}`, ticketToolMessage("1201000000000000001", ada, false, "Hello")
	want := of(t, Options{From: "ticket-tool", Guild: g1}, "a.html", ticketPage(server, message)).ok(t)
	parts := ticketParts(server, message)
	for _, order := range [][3]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		page := "<script>" + parts[order[0]] + ";\n" + parts[order[1]] + ";\n" + parts[order[2]] + "</script>"
		same(t, fmt.Sprint(order), of(t, Options{From: "ticket-tool", Guild: g1}, "a.html", page).ok(t), want)
	}
}

// A message, and a transcript, that comes twice is written once and counted.
func TestAMessageOfATranscriptThatComesTwiceIsWrittenOnce(t *testing.T) {
	t.Parallel()
	message := ticketToolMessage("1201000000000000001", ada, false, "Hello")
	r := of(t, Options{From: "ticket-tool", Guild: g1}, "a.html", ticketPage(`{"id":"`+g1+`"}`, message, message))
	if r.ok(t); strings.Count(r.out, `"ticket_message"`) != 1 {
		t.Errorf("of Ticket Tool: %s", r.out)
	}
	wants(t, r.report.LeftOut, "came twice", 1)
	data := `{"guild_id":"` + g1 + `","tickets":[{"id":17,"user_id":"` + ada + `","open":false,"open_time":"2024-01-01T00:00:00Z"}]}`
	message = `{"id":"1201000000000000001","author":"` + ada + `","content":"Hello","timestamp":"2024-01-28T02:00:00Z"}`
	page := `{"version":2,"messages":[` + message + "," + message + `]}`
	r = of(t, Options{From: "tickets-bot", Guild: g1}, "data.json", data, "17.json", page, "transcript-17.json", page)
	if r.ok(t); strings.Count(r.out, `"ticket_message"`) != 1 {
		t.Errorf("of Tickets.bot: %s", r.out)
	}
	wants(t, r.report.LeftOut, "came twice", 1)
	wants(t, r.report.LeftOut, "is of a ticket whose transcript came before", 1)
}

// A text of base64 that lacks its end is an error, though the page goes on behind it.
// RELIABILITY.md, Input.
func TestBase64OfATicketToolPageThatIsCutIsAnError(t *testing.T) {
	t.Parallel()
	parts := ticketParts(`{"id":"`+g1+`"}`, ticketToolMessage("1201000000000000001", ada, false, "Hello"))
	for i, part := range parts {
		begin := strings.IndexByte(part, '"') + 1
		data := strings.TrimRight(part[begin:len(part)-1], "=") // what is left is whole without its padding
		for end := range data {
			cut := parts
			cut[i] = part[:begin] + data[:end] + `"`
			r := of(t, Options{From: "ticket-tool", Guild: g1}, "a.html", "<script>"+strings.Join(cut[:], ";")+"</script>")
			if r.err == nil {
				t.Fatalf("%s, cut at %d: %s", part[:begin], end, r.out)
			}
			sound(t, part[:begin], r, "a.html")
		}
	}
}

func TestWhatAMessageSaysIsNeverTakenForThePagesData(t *testing.T) {
	t.Parallel()
	server := `{"id":"` + g1 + `"}`
	evil := `</script><script>let messages = "W10=";let server = {"id":"7"}`
	for name, page := range map[string]string{
		"as base64": ticketPage(server, ticketToolMessage("1201000000000000001", ada, false, evil)),
		"as JSON": "<script>let messages = [" + ticketToolMessage("1201000000000000001", ada, false, evil) + "];let guild = " + server +
			`;let channel = {"name":"ticket-0018","id":"1201000000000000000"};`,
	} {
		r := of(t, Options{From: "ticket-tool", Guild: g1}, "a.html", page)
		if r.err != nil || strings.Count(r.out, `"ticket_message"`) != 1 || !strings.Contains(r.out, "let messages = ") {
			t.Errorf("%s: %v: %s", name, r.err, r.out)
		}
	}
}

func TestAPageOfTicketToolThatIsCutIsAnError(t *testing.T) {
	t.Parallel()
	whole := ticketPage(`{"id":"`+g1+`"}`, ticketToolMessage("1201000000000000001", ada, false, "Hello"))
	for end := range len(whole) - len(`";window.Convert(messages, channel, server)</script>`) {
		if r := of(t, Options{From: "ticket-tool", Guild: g1}, "a.html", whole[:end]); r.err == nil {
			t.Fatalf("cut at %d: %s", end, r.out)
		}
	}
}

func TestTheOpenerOfATicketToolPageIsGreetedOrWroteFirst(t *testing.T) {
	t.Parallel()
	const bot = "155149108183695360"
	for want, messages := range map[string][]string{
		bo: {
			ticketToolMessage("1201000000000000001", bot, true, "Hello <@!"+bo+">"),
			ticketToolMessage("1201000000000000002", ada, false, "Me first"),
		},
		ada: {ticketToolMessage("1201000000000000001", bot, true, "Hello"), ticketToolMessage("1201000000000000002", ada, false, "I <@"+bo+">")},
		"":  {ticketToolMessage("1201000000000000001", bot, true, "Hello")},
	} {
		r := of(t, Options{From: "ticket-tool", Guild: g1}, "a.html", ticketPage(`{"id":"`+g1+`"}`, messages...))
		if got := wordAfter(r.out, `"opener_id":"`); got != want {
			t.Errorf("the opener is %q, want %q: %v", got, want, r.err)
		}
	}
}

func TestDataOfTicketsBotIsReadInAnyOrder(t *testing.T) {
	t.Parallel()
	data, transcripts := readFixture(t, "tickets-bot.data.zip"), readFixture(t, "tickets-bot.transcripts.zip")
	o := Options{From: "tickets-bot", Guild: "500000000000000024"}
	first := of(t, o, "data.zip", data, "transcripts.zip", transcripts)
	second := of(t, o, "transcripts.zip", transcripts, "data.zip", data)
	same(t, "the other order", second.ok(t), first.ok(t))
	if r := of(t, o, "data.zip", data, "again.zip", data); r.err == nil || !strings.Contains(r.err.Error(), "is the second data.json") {
		t.Errorf("data.json twice: %v", r.err)
	}
	const tickets = `{"guild_id":"` + g1 + `","tickets":[{"id":1,"user_id":"` + ada + `","open":false,"open_time":"2024-01-01T00:00:00Z"}]}`
	twice := zipped(t, "", "data.json", tickets, "data.json", tickets)
	r := of(t, Options{From: "tickets-bot", Guild: g1}, "a.zip", twice)
	if r.err == nil || !strings.Contains(r.err.Error(), "is the second data.json") {
		t.Errorf("data.json twice in a zip: %v, %s", r.err, r.out)
	}
	outside := zipped(t, "", "transcripts/../17.json", `{"version":2,"messages":[]}`, "data.json", `{"guild_id":"`+g1+`","tickets":[]}`)
	r = of(t, Options{From: "tickets-bot", Guild: g1}, "a.zip", outside)
	if r.err == nil || !strings.Contains(r.err.Error(), "there is nothing in it to write") {
		t.Errorf("a name that leads outside: %v", r.err)
	}
}
