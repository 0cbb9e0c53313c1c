package dashboard

import (
	"slices"
	"time"

	"guildhall/internal/access/auth"
	"guildhall/internal/access/usage"
)

// overviewView shows at a glance whether the guild's integration works.
type overviewView struct {
	Expiring []tokenRow
	Active   int
	Called   bool // a token was used
	Plot     plot
	Groups   []usage.Group
	Webhooks webhooksSummary
}

// New reports whether the guild still has to finish the steps to its first event.
func (v overviewView) New() bool { return v.Active == 0 || !v.Called || v.Webhooks.Total == 0 }

func overview(c *call) (reply, error) {
	tokens, err := auth.Working(c.ctx, c.cfg.DB, c.guild.ID)
	if err != nil {
		return reply{}, err
	}
	v := overviewView{}
	for _, t := range tokens {
		row := tokenRow{t, c.now()}
		v.Active++
		if row.Soon() {
			v.Expiring = append(v.Expiring, row)
		}
		v.Called = v.Called || t.LastUsedAt != nil
	}
	const hours = 24
	start := c.now().UTC().Truncate(time.Hour).Add(-(hours - 1) * time.Hour)
	counted, err := usage.Hours(c.ctx, c.cfg.DB.Reader(), c.guild.ID, "", start)
	if err != nil {
		return reply{}, err
	}
	v.Plot = hourly("Requests per hour, 24 hours", start, hours, counted)
	v.Called = v.Called || v.Plot.Total > 0
	if !v.Called { // a token may have called before the 24 hours of the plot
		if tokens, err = auth.Page(c.ctx, c.cfg.DB, c.guild.ID, true, 0, tokensPage); err != nil {
			return reply{}, err
		}
		v.Called = slices.ContainsFunc(tokens, func(t auth.Token) bool { return t.LastUsedAt != nil })
	}
	if v.Groups, err = usage.Groups(c.ctx, c.cfg.DB.Reader(), c.guild.ID, start); err != nil {
		return reply{}, err
	}
	v.Groups = v.Groups[:min(5, len(v.Groups))]
	if v.Webhooks, err = c.webhooksSummary(); err != nil {
		return reply{}, err
	}
	return reply{page: "overview", view: v, frame: frame{Title: "Overview", Tab: "overview", Live: true}}, nil
}
