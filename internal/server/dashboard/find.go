package dashboard

import (
	"cmp"
	"regexp"
	"strconv"
	"strings"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/fault"
	"guildhall/internal/service/cases"
	"guildhall/internal/service/economy"
	"guildhall/internal/service/giveaways"
	"guildhall/internal/service/members"
	"guildhall/internal/service/tickets"
	"guildhall/internal/service/webhooks"
)

// maxQuery is how many bytes of a text find looks for: no name or reference is longer.
const maxQuery = 600

// hit is one thing that find has found.
type hit struct{ Kind, Name, To string }

type findView struct {
	Query string
	Hits  []hit
	Next  string
}

// What a text to find can be.
var (
	mention    = regexp.MustCompile(`^<@!?([0-9]{1,20})>$`)
	caseNumber = regexp.MustCompile(`^#?([0-9]{1,15})$`)
	ticketText = regexp.MustCompile(`^[tT]#?([0-9]{1,15})$`)
)

// shortestUserID is from how many digits on a number is taken for a member's id, whether or not
// anything is known of the member.
const shortestUserID = 16

// find answers with the page of the one thing that a text names, or with a list: of the things
// that the text names, or else of the members whose names begin with it.
func find(c *call) (reply, error) {
	v := findView{Query: strings.TrimSpace(c.r.URL.Query().Get("q"))}
	if v.Query != "" && len(v.Query) <= maxQuery {
		if err := c.search(&v); err != nil {
			return reply{}, err
		}
	}
	if len(v.Hits) == 1 && v.Next == "" && c.pageNumber("page") == 1 {
		return reply{to: v.Hits[0].To}, nil
	}
	return reply{page: "find", view: v, frame: frame{Title: "Find", Tab: "find"}}, nil
}

func (c *call) search(v *findView) error {
	if m := mention.FindStringSubmatch(v.Query); m != nil {
		v.Hits = []hit{c.memberHit(m[1], "")}
		return nil
	}
	for _, probe := range []func(string) ([]hit, error){
		c.findMember, c.findCases, c.findTickets, c.findReference, c.findEntry, c.findGiveaway, c.findToken, c.findEndpoint,
	} {
		hits, err := probe(v.Query)
		if err != nil {
			return err
		}
		v.Hits = append(v.Hits, hits...)
	}
	if len(v.Hits) > 0 {
		return nil
	}
	rows, more, err := members.Search(c.ctx, c.cfg.DB.Reader(), c.guild.ID, v.Query, c.page())
	for _, m := range rows {
		v.Hits = append(v.Hits, c.memberHit(m.UserID, or(m.Name)))
	}
	v.Next = c.nextPage(more)
	return err
}

func (c *call) memberHit(user, name string) hit {
	return hit{"Member", cmp.Or(name, user), c.path("members", user)}
}

// findMember finds a member by id.
func (c *call) findMember(q string) ([]hit, error) {
	if !snowflake(q) {
		return nil, nil
	}
	m, err := members.Find(c.ctx, c.cfg.DB.Reader(), c.guild.ID, q)
	switch {
	case err != nil:
		return nil, err
	case m != nil:
		return []hit{c.memberHit(q, or(m.Name))}, nil
	case len(q) >= shortestUserID:
		return []hit{c.memberHit(q, "")}, nil
	}
	return nil, nil
}

// numberIn returns the number that form finds in a text; 0 where the text has another form.
func numberIn(form *regexp.Regexp, q string) int64 {
	m := form.FindStringSubmatch(q)
	if m == nil {
		return 0
	}
	n, _ := strconv.ParseInt(m[1], 10, 64) // fifteen digits
	return n
}

func (c *call) findCases(q string) (hits []hit, err error) {
	list, err := cases.Named(c.ctx, c.cfg.DB.Reader(), c.guild.ID, q, numberIn(caseNumber, q))
	for _, one := range list {
		hits = append(hits, hit{"Case", "#" + strconv.FormatInt(one.Number, 10), c.path("cases", one.ID)})
	}
	return hits, err
}

func (c *call) findTickets(q string) (hits []hit, err error) {
	list, err := tickets.Named(c.ctx, c.cfg.DB.Reader(), c.guild.ID, q, numberIn(ticketText, q))
	for _, one := range list {
		hits = append(hits, hit{"Ticket", "t" + strconv.FormatInt(one.Number, 10), c.path("tickets", one.ID)})
	}
	return hits, err
}

func (c *call) findReference(q string) ([]hit, error) {
	id, err := economy.EntryOfReference(c.ctx, c.cfg.DB.Reader(), c.guild.ID, q)
	if err != nil || id == "" {
		return nil, err
	}
	return []hit{{"Ledger entry", q, c.path("ledger", id)}}, nil
}

func (c *call) findEntry(q string) ([]hit, error) {
	e, err := economy.FindEntry(c.ctx, c.cfg.DB.Reader(), c.guild.ID, q)
	return found(err, hit{"Ledger entry", e.ID, c.path("ledger", e.ID)})
}

func (c *call) findGiveaway(q string) ([]hit, error) {
	g, err := giveaways.Find(c.ctx, c.cfg.DB.Reader(), c.guild.ID, q)
	return found(err, hit{"Giveaway", g.Prize, c.path("giveaways", g.ID)})
}

func (c *call) findToken(q string) ([]hit, error) {
	t, err := auth.Find(c.ctx, c.cfg.DB, c.guild.ID, q)
	return found(err, hit{"API token", t.Name, c.path("tokens", t.ID)})
}

func (c *call) findEndpoint(q string) ([]hit, error) {
	e, err := webhooks.StandingOf(c.ctx, c.cfg.DB.Reader(), c.guild.ID, q)
	return found(err, hit{"Webhook", cmp.Or(e.URL, e.Delivery), c.path("webhooks", e.ID)})
}

// found returns the hit of a probe that has read one thing, or nothing where that is not here.
func found(err error, h hit) ([]hit, error) {
	if fault.Is(err, "not_found") {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return []hit{h}, nil
}
