package dashboard_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"unicode"

	"golang.org/x/net/html"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
)

// harmless checks that text from outside has added nothing to the page that runs, loads or leads
// elsewhere, and nothing that acts on the text around it.
func (g got) harmless() got {
	g.t.Helper()
	root, err := html.Parse(strings.NewReader(g.body))
	must(g.t, err)
	for n := range root.Descendants() {
		if n.Type == html.TextNode && strings.IndexFunc(n.Data, disturbs) >= 0 && !isExact(n.Parent) {
			g.t.Errorf("the page holds the text %q in %q", n.Data, g.around(n.Parent))
		}
		if n.Type != html.ElementNode {
			continue
		}
		if slices.Contains([]string{"img", "iframe", "object", "embed", "base", "style", "math", "audio", "video"}, n.Data) ||
			n.Data == "script" && n.FirstChild != nil {
			g.t.Errorf("the page holds %q", g.around(n))
		}
		for _, a := range n.Attr {
			if strings.HasPrefix(a.Key, "on") || a.Key == "style" || a.Key == "srcdoc" ||
				strings.IndexFunc(a.Val, disturbs) >= 0 && (n.Data != "input" || a.Key != "value") ||
				slices.Contains([]string{"href", "src", "action", "formaction"}, a.Key) && !leadsHere(n, a.Val) {
				g.t.Errorf("the page holds %s=%q in %q", a.Key, a.Val, g.around(n))
			}
		}
	}
	return g
}

// isExact reports whether an element holds a text to be copied as it is.
func isExact(n *html.Node) bool {
	return slices.Contains(n.Attr, html.Attribute{Key: "id", Val: "curl"})
}

// around returns the HTML of an element.
func (g got) around(n *html.Node) string {
	var b strings.Builder
	must(g.t, html.Render(&b, n))
	return b.String()
}

// disturbs reports whether a character acts on the text around it.
func disturbs(r rune) bool {
	return unicode.Is(unicode.Cc, r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029'
}

// leadsHere reports whether an address is one of the dashboard's, or that of a link whose target
// gets neither the page nor its address.
func leadsHere(n *html.Node, to string) bool {
	switch {
	case to == "", strings.HasPrefix(to, "?"), strings.HasPrefix(to, "#"), to == "/docs", strings.HasPrefix(to, "/dashboard/"):
		return true
	}
	return strings.HasPrefix(to, "https://") && n.Data == "a" &&
		slices.Contains(n.Attr, html.Attribute{Key: "rel", Val: "noopener noreferrer nofollow"})
}

// hostileTexts are texts that do harm on a page that does not take them for text. Each holds the
// word h0stile.
var hostileTexts = []string{
	`<script>alert("h0stile")</script>`,
	`"><img src=x onerror=alert('h0stile')>`,
	`' onmouseover='alert("h0stile")' x='`,
	`</title></textarea></style></pre></code><svg onload=alert("h0stile")>`,
	`javascript:alert("h0stile")`,
	`data:text/html,<script>alert("h0stile")</script>`,
	`//h0stile.example/`,
	`https://h0stile.example/"onclick="alert(1)`,
	`{{.Guild.ID}}{{template "h0stile"}}${h0stile}`,
	"h0stile \u202e\u2066\u200f gnp.exe \u2028\u2029",
	"h0stile \a\b\x1b[31m\r\x7f\u009b",
	`&lt;h0stile&gt; &#60;script&#62; --><!-- ]]>`,
	`h0stile' OR '1'='1'; DROP TABLE cases; --`,
	"h0stile" + strings.Repeat("\u0301", 60) + strings.Repeat("W", 60),
}

// spoil creates a function that puts a text into every column of text from outside that the
// database lets hold it, and returns the names of the changed columns. Ids, which lead to pages,
// and words that the program itself writes stay.
const spoil = `
	CREATE FUNCTION spoil(hostile text) RETURNS text[] LANGUAGE plpgsql AS $$
	DECLARE
		c record; n bigint; done text[] := '{}';
	BEGIN
		FOR c IN
			SELECT table_name AS t, column_name AS f
			FROM information_schema.columns
			WHERE table_schema = current_schema() AND data_type = 'text'
			  AND table_name NOT IN ('dashboard_sessions', 'dashboard_links', 'dashboard_once', 'guild_settings', 'secret_key_check',
			                         'goose_db_version')
			  AND column_name !~ '(^|_)(id|hash|state|status|delivery|disposition|outcome|code|by|preview|operation|action|scope|address)$'
			  AND (table_name, column_name) NOT IN (('webhook_events', 'type'), ('webhook_deliveries', 'event_type'), ('ledger_entries', 'note'))
		LOOP
			BEGIN
				EXECUTE format('UPDATE %I SET %I = $1', c.t, c.f) USING hostile;
				GET DIAGNOSTICS n = ROW_COUNT;
				IF n > 0 THEN done := done || (c.t || '.' || c.f); END IF;
			EXCEPTION WHEN OTHERS THEN NULL; -- a constraint keeps such a text out
			END;
		END LOOP;
		RETURN done;
	END $$`

// spoilJSON puts a text into the JSON from outside.
const spoilJSON = `
	WITH cases AS (UPDATE cases SET metadata = jsonb_build_object($1::text, $1::text)),
	     members AS (UPDATE members SET metadata = jsonb_build_object($1::text, $1::text)),
	     giveaways AS (UPDATE giveaways SET metadata = jsonb_build_object($1::text, $1::text)),
	     tickets AS (UPDATE tickets SET metadata = jsonb_build_object($1::text, $1::text)),
	     files AS (UPDATE ticket_messages SET attachments = jsonb_build_array(
	                   jsonb_build_object('name', $1::text, 'url', $1::text, 'content_type', $1::text),
	                   jsonb_build_object('name', $1::text, 'url', 'https://' || $1, 'content_type', $1::text))),
	     audit AS (UPDATE audit_log SET before = jsonb_build_object('url', $1::text), after = jsonb_build_object('url', $1 || '2')),
	     draws AS (UPDATE giveaway_draws SET drawn = ARRAY[$1 || '1', $1 || '2'])
	UPDATE case_changes SET changes = jsonb_build_array(jsonb_build_object('field', 'metadata.' || $1, 'before', $1::text, 'after', $1 || '2'))
	WHERE changes <> '[]'`

// spoil puts a text into every field, and returns the names of the changed columns of text.
func (s *site) spoil(t testing.TB, text string) []string {
	t.Helper()
	var done string
	dbtest.Do(t, s.DB, func(ctx context.Context, tx *db.Tx) error {
		return tx.GetContext(ctx, &done, `SELECT array_to_string(spoil($1), ' ')`, text)
	})
	dbtest.Exec(t, s.DB, spoilJSON, text)
	return strings.Fields(done)
}

// Hostile texts of every kind, in every field of every record, stay text on every page.
// RELIABILITY.md, Operation.
func TestHostileTextsStayText(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.as(t, "owner")
	ids := s.things(t, guildID)
	s.drawn(t)
	s.addMarcel(t)
	dbtest.Exec(t, s.DB, spoil)
	pages := []string{
		page(guildID, "find") + "?q=12", page(guildID, "giveaways", "g") + "?verify=1", page(guildID, "giveaways", "running-"+guildID),
		page(guildID, "requests") + "?code=not_found",
	}
	for _, r := range dashboardRoutes(t, guildID, ids) {
		if r.method == "GET" && r.want == 200 && r.pattern != "/guilds/{guild}/find" {
			pages = append(pages, r.path)
		}
	}
	for _, text := range hostileTexts {
		done := s.spoil(t, text)
		for _, field := range []string{
			"guilds.name", "members.name", "members.avatar_url", "cases.reason", "tickets.subject", "tickets.category", "tickets.close_reason",
			"ticket_messages.content", "ticket_messages.original_content", "giveaways.prize", "giveaways.description", "giveaway_draws.reason",
			"ledger_entries.reason", "ledger_entries.reference", "api_tokens.name", "webhook_endpoints.description",
			"webhook_endpoints.url", "webhook_deliveries.error", "webhook_attempts.error", "webhook_attempts.excerpt", "audit_log.actor_name",
			"audit_log.target_name", "usage_refusals.message",
		} {
			if !slices.Contains(done, field) {
				t.Errorf("%s does not hold %q", field, text)
			}
		}
		for _, path := range pages {
			b.get(path).wants(200, "h0stile").harmless()
		}
	}
}
