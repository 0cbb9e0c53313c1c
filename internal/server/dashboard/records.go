package dashboard

import (
	"slices"
	"strconv"
	"time"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/page"
	"guildhall/internal/service/members"
	"guildhall/internal/service/webhooks"
)

// recordsPage is how many records a list shows at a time.
const recordsPage = 50

// recordRoutes names the pages of records.
func (s *Server) recordRoutes(guild func(string, handler)) {
	const g = "GET /guilds/{guild}"
	guild(g+"/find", find)
	guild(g+"/members/{user}", showMember)
	guild(g+"/ledger/{id}", showEntry)
	guild(g+"/cases", listCases)
	guild(g+"/cases/{id}", showCase)
	guild(g+"/tickets", listTickets)
	guild(g+"/tickets/{id}", showTicket)
	guild(g+"/giveaways", listGiveaways)
	guild(g+"/giveaways/{id}", showGiveaway)
}

// personView is a member as pages of records name members.
type personView struct{ ID, Name, To string }

// people are the names of the members that a page mentions.
type people struct {
	call  *call
	names map[string]string
}

// people reads the names of members. It skips empty ids.
func (c *call) people(users ...string) (people, error) {
	slices.Sort(users)
	users = slices.DeleteFunc(slices.Compact(users), func(user string) bool { return user == "" })
	if len(users) == 0 {
		return people{call: c}, nil
	}
	names, err := members.Names(c.ctx, c.cfg.DB.Reader(), c.guild.ID, users)
	return people{c, names}, err
}

// Person returns how the page names a member.
func (p people) Person(user string) personView {
	return personView{user, p.names[user], p.call.path("members", user)}
}

// or returns *s, or the empty text.
func or(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// actorView is who made a change: a token, a bot key, or a rule of the service.
type actorView struct{ Kind, Name, Preview, To string }

// actors returns who is behind each id of a token or bot key; the service itself for an empty
// id. The name of what is not there any more is its id.
func (c *call) actors(ids ...string) (map[string]actorView, error) {
	found := map[string]actorView{"": {Kind: kinds["system"], Name: "Guildhall"}}
	var tokens []string
	for _, id := range ids {
		by := auth.By{GuildID: c.guild.ID, ID: id}
		switch by.Type() {
		case "api":
			tokens = append(tokens, id)
			found[id] = actorView{Kind: kinds["token"], Name: id}
		case "bot":
			found[id] = actorView{Kind: kinds["bot_key"], Name: id}
		}
	}
	if len(tokens) > 0 {
		list, err := auth.Named(c.ctx, c.cfg.DB, c.guild.ID, tokens)
		if err != nil {
			return nil, err
		}
		for _, t := range list {
			found[t.ID] = actorView{kinds["token"], t.Name, t.Preview, c.path("tokens", t.ID)}
		}
	}
	if len(found) > len(tokens)+1 {
		keys, err := auth.KeysOf(c.ctx, c.cfg.DB, c.guild.ID)
		if err != nil {
			return nil, err
		}
		for _, k := range keys {
			if _, asked := found[k.ID]; asked {
				found[k.ID] = actorView{Kind: kinds["bot_key"], Name: k.Name, Preview: k.Preview}
			}
		}
	}
	return found, nil
}

// service reports whether nobody but the service itself is the actor.
func (a actorView) service() bool { return a.Kind == kinds["system"] }

// actorsOf returns who is behind each record of a list. origin returns the ids of the token and
// of the bot key that made a record.
func actorsOf[R any](c *call, list []R, origin func(R) (token, key *string)) ([]actorView, error) {
	ids := make([]string, len(list))
	for i, r := range list {
		token, key := origin(r)
		ids[i] = or(token) + or(key)
	}
	found, err := c.actors(ids...)
	if err != nil {
		return nil, err
	}
	return page.Each(ids, func(id string) actorView { return found[id] }), nil
}

// change is one change of a record, as its trace shows it.
type change struct {
	At     time.Time
	What   string
	Who    *actorView // nil: nothing that is stored says who
	Author string     // the member who acted, through the actor if there is one; empty: none is known
	Diff   []auditChange
	Events []webhooks.Emitted
}

// withLast returns the changes of a record with its last change, where none of them has its instant.
func withLast(changes []change, at time.Time) []change {
	if slices.ContainsFunc(changes, func(c change) bool { return c.At.UnixMilli() == at.UnixMilli() }) {
		return changes
	}
	return append(changes, change{At: at, What: "last changed"})
}

// traceView is the trace of a record: its changes, and the events that were emitted for them.
type traceView struct {
	people
	Changes []change
}

// eventsKept is how long an event can be read after its change.
const eventsKept = 31 * 24 * time.Hour

// Over reports whether no event of a change can be there any more.
func (t traceView) Over(at time.Time) bool { return t.call.now().Sub(at) > eventsKept }

// Delivery returns the path of a delivery's page; empty when its endpoint was removed.
func (t traceView) Delivery(o webhooks.Outcome) string {
	if o.Endpoint == "" {
		return ""
	}
	return t.call.path("webhooks", o.EndpointID, "deliveries", o.DeliveryID)
}

// trace adds to each change of a record the events that were emitted for the change. The types of
// these events begin with family.
func (c *call) trace(p people, family, id string, changes []change) (traceView, error) {
	instants := make([]time.Time, len(changes))
	for i, change := range changes {
		instants[i] = change.At
	}
	events, err := webhooks.Trace(c.ctx, c.cfg.DB.Reader(), c.guild.ID, family, id, instants...)
	for _, e := range events {
		if i := slices.IndexFunc(changes, func(change change) bool {
			return change.At.UnixMilli() == e.OccurredAt.UnixMilli()
		}); i >= 0 {
			changes[i].Events = append(changes[i].Events, e)
		}
	}
	return traceView{p, changes}, err
}

// page returns the page of a list that the query string names.
func (c *call) page() page.P { return page.Of(c.pageNumber("page"), recordsPage) }

// nextPage returns the query of the next page of a list; empty where no page follows.
func (c *call) nextPage(more bool) string {
	if !more {
		return ""
	}
	q := c.r.URL.Query()
	q.Set("page", strconv.Itoa(c.pageNumber("page")+1))
	return "?" + q.Encode()
}
