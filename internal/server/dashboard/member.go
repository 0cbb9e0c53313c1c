package dashboard

import (
	"guildhall/internal/base/fault"
	"guildhall/internal/base/page"
	"guildhall/internal/service/cases"
	"guildhall/internal/service/economy"
	"guildhall/internal/service/giveaways"
	"guildhall/internal/service/leaderboard"
	"guildhall/internal/service/levelling"
	"guildhall/internal/service/members"
	"guildhall/internal/service/tickets"
)

// newest is how many records of each kind a member's page shows.
const newest = 10

// memberView is a member with what the guild keeps of the member.
type memberView struct {
	ID        string
	Member    *members.Member // nil: no record of the member was ever written
	Wallet    economy.Wallet
	Rank      *leaderboard.Place // nil: not on the leaderboard
	Level     levelling.Record
	LevelRank *leaderboard.Place
	Entries   []entryRow
	Cases     []cases.Case
	Tickets   []tickets.Ticket
	Giveaways []giveaways.Entered
	Recent    int // how many recent giveaways the page lists
}

// Present reports whether the member is known to be in the guild.
func (v *memberView) Present() bool { return members.Present(v.Member) }

// Avatar returns the member's picture.
func (v *memberView) Avatar() file { return fileAt(or(v.Member.AvatarURL)) }

// Unknown reports whether the guild keeps nothing of the member.
func (v *memberView) Unknown() bool {
	return v.Member == nil && v.Wallet.UpdatedAt == nil && v.Level.UpdatedAt == nil && len(v.Entries)+len(v.Cases)+len(v.Tickets)+len(v.Giveaways) == 0
}

// Title is what the page calls the member.
func (v *memberView) Title() string {
	if v.Member != nil && v.Member.Name != nil {
		return *v.Member.Name
	}
	return v.ID
}

// entryRow is a ledger entry with who made it.
type entryRow struct {
	economy.LedgerEntry
	Who actorView
}

func showMember(c *call) (reply, error) {
	v := &memberView{ID: c.r.PathValue("user"), Recent: giveaways.Recent}
	if !snowflake(v.ID) {
		return reply{}, errNotHere
	}
	for _, read := range []func(*memberView) error{c.readWallet, c.readLevel, c.readLedger, c.readOthers} {
		if err := read(v); err != nil {
			return reply{}, err
		}
	}
	return reply{page: "member", view: v, frame: frame{Title: v.Title(), Tab: "find", Crumbs: []crumb{{"Find", c.path("find")}}}}, nil
}

func (c *call) readWallet(v *memberView) (err error) {
	q := c.cfg.DB.Reader()
	if v.Wallet, err = economy.WalletOf(c.ctx, q, c.guild.ID, v.ID); err != nil || v.Wallet.UpdatedAt == nil {
		return err
	}
	v.Rank, err = placeOf(economy.RankOf(c.ctx, q, c.guild.ID, v.ID))
	return err
}

func (c *call) readLevel(v *memberView) (err error) {
	q := c.cfg.DB.Reader()
	if v.Level, err = levelling.RecordOf(c.ctx, q, c.guild.ID, v.ID); err != nil || v.Level.UpdatedAt == nil {
		return err
	}
	v.LevelRank, err = placeOf(levelling.RankOf(c.ctx, q, c.guild.ID, v.ID))
	return err
}

// placeOf returns a place on a leaderboard; nil for a member who is not on it.
func placeOf(p leaderboard.Place, err error) (*leaderboard.Place, error) {
	if fault.Is(err, "not_found") {
		return nil, nil //nolint:nilnil // the member is not on the leaderboard, and that is no failure
	}
	return &p, err
}

// readLedger reads the newest ledger entries, and who made them.
func (c *call) readLedger(v *memberView) error {
	list, err := economy.Newest(c.ctx, c.cfg.DB.Reader(), c.guild.ID, v.ID, newest)
	if err != nil {
		return err
	}
	v.Entries, err = c.entryRows(list)
	return err
}

func (c *call) entryRows(list []economy.LedgerEntry) ([]entryRow, error) {
	who, err := actorsOf(c, list, func(e economy.LedgerEntry) (token, key *string) { return e.Origin.TokenID, e.Origin.KeyID })
	rows := make([]entryRow, len(who))
	for i, by := range who {
		if by.service() {
			by.Name = list[i].Note // the rule, as the ledger has it
		}
		rows[i] = entryRow{list[i], by}
	}
	return rows, err
}

// readOthers reads the member, cases, tickets and giveaways.
func (c *call) readOthers(v *memberView) (err error) {
	q, guild, p := c.cfg.DB.Reader(), c.guild.ID, page.Of(1, newest)
	if v.Member, err = members.Find(c.ctx, q, guild, v.ID); err != nil {
		return err
	}
	if v.Cases, _, err = cases.List(c.ctx, q, guild, cases.Filter{UserID: v.ID}, p); err != nil {
		return err
	}
	if v.Tickets, _, err = tickets.List(c.ctx, q, guild, tickets.Filter{OpenerID: v.ID}, p); err != nil {
		return err
	}
	v.Giveaways, err = giveaways.OfMember(c.ctx, q, guild, v.ID, newest)
	return err
}

// entryView is a ledger entry with its trace.
type entryView struct {
	people
	Entry entryRow
	Trace traceView
}

// Before is the balance before the entry.
func (v *entryView) Before() int64 { return v.Entry.BalanceAfter - v.Entry.Delta }

func showEntry(c *call) (reply, error) {
	e, err := economy.FindEntry(c.ctx, c.cfg.DB.Reader(), c.guild.ID, c.r.PathValue("id"))
	if err != nil {
		return reply{}, notHere(err)
	}
	rows, err := c.entryRows([]economy.LedgerEntry{e})
	if err != nil {
		return reply{}, err
	}
	p, err := c.people(e.UserID, or(e.CounterpartyID), or(e.AuthorID))
	if err != nil {
		return reply{}, err
	}
	v := &entryView{people: p, Entry: rows[0]}
	v.Trace, err = c.trace(p, "economy.", e.ID, []change{{At: e.CreatedAt.Time, What: signed(e.Delta), Who: &rows[0].Who, Author: or(e.AuthorID)}})
	if err != nil {
		return reply{}, err
	}
	return reply{page: "ledger", view: v, frame: frame{
		Title: "Ledger entry", Tab: "find", Crumbs: []crumb{{"Find", c.path("find")}, {c.called(p, e.UserID), c.path("members", e.UserID)}},
	}}, nil
}

// called is what a page calls a member.
func (c *call) called(p people, user string) string {
	if name := p.names[user]; name != "" {
		return name
	}
	return user
}

// signed is a change of a number with its sign.
func signed(delta int64) string {
	if delta > 0 {
		return "+" + number(delta)
	}
	return number(delta)
}
