package dashboard

import (
	"slices"
	"strconv"

	"guildhall/internal/base/page"
	"guildhall/internal/service/giveaways"
)

const (
	// entrantsPage is how many entrants of a giveaway a page shows, and drawsPage how many draws.
	entrantsPage = 50
	drawsPage    = 10
)

type giveawaysView struct {
	people
	Status string
	States []string
	Rows   []giveaways.Giveaway
	Next   string
}

func listGiveaways(c *call) (reply, error) {
	v := &giveawaysView{States: giveaways.States, Status: c.chosen("status", giveaways.States)}
	rows, more, err := giveaways.List(c.ctx, c.cfg.DB.Reader(), c.guild.ID, v.Status, c.page())
	if err != nil {
		return reply{}, err
	}
	v.Rows, v.Next = rows, c.nextPage(more)
	var users []string
	for _, g := range rows {
		users = append(users, g.Winners...)
	}
	if v.people, err = c.people(users...); err != nil {
		return reply{}, err
	}
	return reply{page: "giveaways", view: v, frame: frame{Title: "Giveaways", Tab: "giveaways"}}, nil
}

// giveawayView is a giveaway with its entrants, draws and trace.
type giveawayView struct {
	people
	Giveaway     giveaways.Giveaway
	Entrants     []giveaways.Entrant
	MoreEntrants string
	Draws        []drawRow
	MoreDraws    string
	Page         string // of the draws
	Verified     bool   // the draws of the page were repeated
	Trace        traceView
}

// drawRow is a draw with who asked for it.
type drawRow struct {
	giveaways.Drawn
	Who actorView
}

func showGiveaway(c *call) (reply, error) {
	g, err := giveaways.Find(c.ctx, c.cfg.DB.Reader(), c.guild.ID, c.r.PathValue("id"))
	if err != nil {
		return reply{}, notHere(err)
	}
	v := &giveawayView{Giveaway: g}
	q := c.r.URL.Query()
	p := page.Of(c.pageNumber("entrants"), entrantsPage)
	var more bool
	if v.Entrants, more, err = giveaways.EntrantsOf(c.ctx, c.cfg.DB.Reader(), c.guild.ID, g, p); err != nil {
		return reply{}, err
	}
	if more {
		q.Set("entrants", strconv.Itoa(p.Page+1))
		v.MoreEntrants = "?" + q.Encode()
	}
	if err := c.readDraws(v); err != nil {
		return reply{}, err
	}
	users := slices.Concat(g.Winners, []string{or(g.HostID)})
	for _, e := range v.Entrants {
		users = append(users, e.UserID)
	}
	for _, d := range v.Draws {
		users = append(users, d.Winners...)
	}
	if v.people, err = c.people(users...); err != nil {
		return reply{}, err
	}
	if v.Trace, err = c.trace(v.people, "giveaway.", g.ID, v.changes()); err != nil {
		return reply{}, err
	}
	return reply{page: "giveaway", view: v, frame: frame{Title: g.Prize, Tab: "giveaways", Crumbs: []crumb{{"Giveaways", c.path("giveaways")}}}}, nil
}

// readDraws reads a page of the draws, and repeats them where the query string asks for it.
func (c *call) readDraws(v *giveawayView) error {
	q, p := c.r.URL.Query(), page.Of(c.pageNumber("draws"), drawsPage)
	v.Page, v.Verified = strconv.Itoa(p.Page), q.Get("verify") != ""
	draws, more, err := giveaways.DrawsOf(c.ctx, c.cfg.DB.Reader(), c.guild.ID, v.Giveaway, p, v.Verified)
	if err != nil {
		return err
	}
	who, err := actorsOf(c, draws, func(d giveaways.Drawn) (token, key *string) { return d.Origin.TokenID, d.Origin.KeyID })
	for i, by := range who {
		if by.service() {
			by.Name = "its time was over"
		}
		v.Draws = append(v.Draws, drawRow{draws[i], by})
	}
	if more {
		q.Set("draws", strconv.Itoa(p.Page+1))
		q.Del("verify")
		v.MoreDraws = "?" + q.Encode()
	}
	return err
}

// changes returns what the giveaway's rows say of its changes: when the giveaway was created, drawn,
// cancelled and last changed.
func (v *giveawayView) changes() []change {
	changes := []change{{At: v.Giveaway.CreatedAt.Time, What: "made"}}
	for i := range v.Draws {
		d := &v.Draws[i]
		changes = append(changes, change{At: d.DrawnAt.Time, What: "drawn, round " + strconv.Itoa(d.Round), Who: &d.Who})
	}
	if at := v.Giveaway.EndedAt; at != nil && v.Giveaway.Status == "cancelled" {
		changes = append(changes, change{At: at.Time, What: "cancelled"})
	}
	return withLast(changes, v.Giveaway.UpdatedAt.Time)
}

// PostProblem is what is wrong with the giveaway's message, in a sentence; empty when nothing is
// known to be.
func (v *giveawayView) PostProblem() string {
	switch or(v.Giveaway.PostProblem) {
	case "":
		return ""
	case "deleted":
		return "It was deleted. Reactions to it cannot be read any more: only entries that a program has recorded count."
	case "no_channel":
		return "Its channel is gone, or is not a channel of this server."
	case "forbidden":
		return "The bot may not read or edit it. Allow the bot to see the channel, to read its history and to write there."
	}
	return "The platform refuses to have it read or edited."
}

// Outcome is what has become of the giveaway, in a sentence.
func (v *giveawayView) Outcome() string {
	g := v.Giveaway
	switch {
	case g.Status == "scheduled":
		return "It has not begun."
	case g.Status == "active", g.Status == "paused":
		return "It has not ended."
	case g.Status == "drawing":
		return "It has ended, and its winners are being drawn."
	case g.Status == "cancelled":
		return "It was cancelled, and nothing was drawn."
	case len(g.Winners) == 0 && g.EntrantCount == 0:
		return "Nobody had entered, so nobody won."
	case len(g.Winners) == 0:
		return "Nobody won."
	case len(g.Winners) < g.WinnerCount:
		return "Fewer won than there were prizes."
	}
	return "Every prize has a winner."
}
