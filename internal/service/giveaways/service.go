// Package giveaways runs giveaways: their states, their entries and their draws. The draw is
// documented at pick, so that anyone can repeat one from its record. Package chat posts the
// announcements, and lanes do what is due later.
package giveaways

import (
	"context"
	"encoding/hex"
	"errors"
	"time"

	"guildhall/gen"
	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/metadata"
	"guildhall/internal/base/page"
	"guildhall/internal/base/wire"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/outbound/event"
)

// Service implements the operations of the tag Giveaways.
type Service struct {
	Chat chat.Platform
}

// checked is the result of PrepareCreate for a channel.
type checked struct {
	channel string
	err     error
}

type checkedKey struct{}

// PrepareCreate asks the platform whether the channel belongs to the guild, before the transaction
// of CreateGiveaway.
func (s *Service) PrepareCreate(ctx context.Context, body *gen.CreateGiveawayRequest) (context.Context, error) {
	err := s.Chat.CheckChannel(ctx, chat.Channel{GuildID: auth.Acting(ctx).GuildID, ID: body.ChannelID})
	switch {
	case errors.Is(err, chat.ErrChannelNotAllowed):
		err = fault.New(fault.Refused, "channel_not_allowed", "Channel %s is not one of this guild that the bot can see.", body.ChannelID)
	case err != nil:
		err = fault.New(fault.Upstream, "discord_send_failed", "The chat platform could not be asked about the channel.").Because(err)
	}
	return context.WithValue(ctx, checkedKey{}, checked{body.ChannelID, err}), nil
}

// ListGiveaways lists the guild's giveaways, newest first, or those that changed since an instant
// by their last change.
func (*Service) ListGiveaways(ctx context.Context, r gen.ListGiveawaysRequestObject) (gen.ListGiveawaysResponseObject, error) {
	p := page.Of(r.Params.Page, r.Params.PerPage)
	var status string
	if r.Params.Status != nil {
		status = string(*r.Params.Status)
	}
	var since *time.Time
	if r.Params.UpdatedSince != nil {
		since = &r.Params.UpdatedSince.Time
	}
	rows, err := list(ctx, db.Read(ctx), auth.Acting(ctx).GuildID, status, since, metadata.ParseLookup(r.Params.Metadata), p)
	if err != nil {
		return nil, err
	}
	rows, more := page.Cut(rows, p)
	return gen.ListGiveaways200JSONResponse{Data: page.Each(rows, show), Page: p.Page, PerPage: p.PerPage, HasMore: more}, nil
}

// CreateGiveaway creates a giveaway, which becomes active at once or, if its start is in the
// future, then. It returns an Invalid fault if the giveaway would be over before it starts, and a
// Refused fault for a channel that is not the guild's. The message by which members enter is posted
// as soon as the giveaway is active.
func (*Service) CreateGiveaway(ctx context.Context, r gen.CreateGiveawayRequestObject) (gen.CreateGiveawayResponseObject, error) {
	tx, by := db.Write(ctx), auth.Acting(ctx)
	now, err := tx.Now(ctx)
	if err != nil {
		return nil, err
	}
	starts, status := now, active
	if r.Body.StartsAt != nil {
		starts = r.Body.StartsAt.Time
	}
	if starts.After(now) {
		status = scheduled
	}
	switch ends := r.Body.EndsAt; {
	case !ends.Time.After(now):
		return nil, errEndsPast
	case !ends.Time.After(starts):
		return nil, errEndsBefore
	}
	if err := checkedChannel(ctx, r.Body.ChannelID); err != nil {
		return nil, err
	}
	kept, err := metadata.Values(nil).With(r.Body.Metadata)
	if err != nil {
		return nil, err
	}
	g, err := insert(ctx, tx, row{
		GuildID:     by.GuildID,
		ID:          db.NewID(),
		Status:      status,
		Prize:       r.Body.Prize,
		Description: r.Body.Description,
		WinnerCount: r.Body.WinnerCount,
		HostID:      r.Body.HostID,
		ChannelID:   r.Body.ChannelID,
		StartsAt:    wire.At(starts),
		EndsAt:      r.Body.EndsAt,
		Source:      fromAPI,
		Metadata:    kept,
	})
	if err != nil {
		return nil, err
	}
	if err := event.Record(ctx, tx, event.From(by).On(g.UpdatedAt.Time), event.GiveawayCreated, show(g)); err != nil {
		return nil, err
	}
	if g.Status == active {
		if err := present(ctx, tx, g); err != nil {
			return nil, err
		}
	}
	return gen.CreateGiveaway201JSONResponse{
		Body:    gen.GiveawayEnvelope{Data: show(g)},
		Headers: gen.CreateGiveaway201ResponseHeaders{Location: location(g)},
	}, nil
}

// checkedChannel returns the result of PrepareCreate for the channel.
func checkedChannel(ctx context.Context, channel string) error {
	c, ok := ctx.Value(checkedKey{}).(checked)
	if !ok || c.channel != channel {
		return errors.New("giveaways: a channel is used that nobody has asked about")
	}
	return c.err
}

// GetGiveaway returns one giveaway.
func (*Service) GetGiveaway(ctx context.Context, r gen.GetGiveawayRequestObject) (gen.GetGiveawayResponseObject, error) {
	g, err := get(ctx, db.Read(ctx), auth.Acting(ctx).GuildID, r.ID)
	if err != nil {
		return nil, err
	}
	return gen.GetGiveaway200JSONResponse{Data: show(g)}, nil
}

// ListGiveawayEntries lists the entrants of a giveaway in the order in which they entered.
func (*Service) ListGiveawayEntries(ctx context.Context, r gen.ListGiveawayEntriesRequestObject) (gen.ListGiveawayEntriesResponseObject, error) {
	p := page.Of(r.Params.Page, r.Params.PerPage)
	g, err := get(ctx, db.Read(ctx), auth.Acting(ctx).GuildID, r.ID)
	if err != nil {
		return nil, err
	}
	rows, err := entries(ctx, db.Read(ctx), g, r.Params.UserID, p)
	if err != nil {
		return nil, err
	}
	rows, more := page.Cut(rows, p)
	return gen.ListGiveawayEntries200JSONResponse{Data: page.Each(rows, showEntry), Page: p.Page, PerPage: p.PerPage, HasMore: more}, nil
}

// ListGiveawayDraws lists the records of a giveaway's draws, by round.
func (*Service) ListGiveawayDraws(ctx context.Context, r gen.ListGiveawayDrawsRequestObject) (gen.ListGiveawayDrawsResponseObject, error) {
	p := page.Of(r.Params.Page, r.Params.PerPage)
	g, err := get(ctx, db.Read(ctx), auth.Acting(ctx).GuildID, r.ID)
	if err != nil {
		return nil, err
	}
	rows, err := records(ctx, db.Read(ctx), g, p)
	if err != nil {
		return nil, err
	}
	rows, more := page.Cut(rows, p)
	return gen.ListGiveawayDraws200JSONResponse{Data: page.Each(rows, showDraw), Page: p.Page, PerPage: p.PerPage, HasMore: more}, nil
}

// EndGiveaway ends a giveaway before its time. A worker draws it; the response comes before the
// winners are known.
func (*Service) EndGiveaway(ctx context.Context, r gen.EndGiveawayRequestObject) (gen.EndGiveawayResponseObject, error) {
	tx, by := db.Write(ctx), auth.Acting(ctx)
	g, err := move(ctx, tx, toDrawing, by.GuildID, r.ID,
		errNotRunning("ended"),
		by.ID)
	if err != nil {
		return nil, err
	}
	if err := event.Record(ctx, tx, event.From(by).On(g.UpdatedAt.Time), event.GiveawayDrawing, show(g)); err != nil {
		return nil, err
	}
	return gen.EndGiveaway202JSONResponse{
		Body:    gen.GiveawayEnvelope{Data: show(g)},
		Headers: gen.EndGiveaway202ResponseHeaders{Location: location(g), RetryAfter: 2},
	}, nil
}

// PauseGiveaway pauses an active giveaway.
func (*Service) PauseGiveaway(ctx context.Context, r gen.PauseGiveawayRequestObject) (gen.PauseGiveawayResponseObject, error) {
	tx, by := db.Write(ctx), auth.Acting(ctx)
	g, err := move(ctx, tx, toPaused, by.GuildID, r.ID,
		fault.New(fault.Refused, "giveaway_not_active", "only an active one can be paused."))
	if err != nil {
		return nil, err
	}
	if err := event.Record(ctx, tx, event.From(by).On(g.UpdatedAt.Time), event.GiveawayPaused, show(g)); err != nil {
		return nil, err
	}
	return gen.PauseGiveaway200JSONResponse{Data: show(g)}, nil
}

// ResumeGiveaway continues a paused giveaway, with as much time left as when it was paused. An
// announcement says when it ends.
func (*Service) ResumeGiveaway(ctx context.Context, r gen.ResumeGiveawayRequestObject) (gen.ResumeGiveawayResponseObject, error) {
	tx, by := db.Write(ctx), auth.Acting(ctx)
	g, err := move(ctx, tx, toActive, by.GuildID, r.ID,
		fault.New(fault.Refused, "giveaway_not_paused", "only a paused one can be resumed."))
	if err != nil {
		return nil, err
	}
	if err := event.Record(ctx, tx, event.From(by).On(g.UpdatedAt.Time), event.GiveawayResumed, show(g)); err != nil {
		return nil, err
	}
	if g.Source == fromAPI {
		if err := announce(ctx, tx, g, chat.KindGiveawayResumed, notice{text: resumedText(g)}); err != nil {
			return nil, err
		}
	}
	return gen.ResumeGiveaway200JSONResponse{Data: show(g)}, nil
}

// RerollGiveaway replaces the first winners, or the named ones, with entrants who have never won.
// If there are too few, it returns a Refused fault and changes nothing.
func (*Service) RerollGiveaway(ctx context.Context, r gen.RerollGiveawayRequestObject) (gen.RerollGiveawayResponseObject, error) {
	tx, by := db.Write(ctx), auth.Acting(ctx)
	var body gen.RerollGiveawayRequest
	if r.Body != nil {
		body = *r.Body
	}
	if body.Count != nil && body.ReplaceUserIds != nil {
		return nil, fault.New(fault.Invalid, "invalid_request", "body /count: does not go with replace_user_ids")
	}
	g, err := lock(ctx, tx, by.GuildID, r.ID)
	if err != nil {
		return nil, err
	}
	if g.Status != ended {
		return nil, fault.New(fault.Refused, "giveaway_not_ended", "The giveaway is %s; only one that has ended can be rerolled.", g.Status)
	}
	o, err := orderOf(g, body)
	if err != nil {
		return nil, err
	}
	o.tokenID = &by.ID
	g, draw, err := conduct(ctx, tx, g, o)
	if err != nil {
		return nil, err
	}
	if err := event.Record(ctx, tx, event.From(by).On(g.UpdatedAt.Time), event.GiveawayRerolled, gen.GiveawayReroll{
		Giveaway:        show(g),
		ReplacedUserIds: draw.Replaced,
		NewUserIds:      draw.Drawn,
		Reason:          body.Reason,
		AuthorID:        body.AuthorID,
	}); err != nil {
		return nil, err
	}
	if err := announce(ctx, tx, g, chat.KindGiveawayRerolled, rerolledTexts(g, draw.Drawn, body.Reason)...); err != nil {
		return nil, err
	}
	return gen.RerollGiveaway200JSONResponse{Data: show(g)}, nil
}

// orderOf says what a reroll that body asks for is to do.
func orderOf(g row, body gen.RerollGiveawayRequest) (order, error) {
	if g.Rounds >= maxRounds {
		return order{}, fault.New(fault.Refused, "too_many_rerolls", "The giveaway was drawn %d times; it is not rerolled any more.", g.Rounds)
	}
	o := order{all: true, excluded: body.ExcludeUserIds, reason: body.Reason}
	if len(body.ReplaceUserIds) > 0 {
		places, stranger := placesOf(g.Winners, body.ReplaceUserIds)
		if stranger != "" {
			return order{}, fault.New(fault.Refused, "not_a_winner", "User %s is no winner of the giveaway now.", stranger)
		}
		o.count, o.places = len(places), places
		return o, nil
	}
	count := 1
	if body.Count != nil {
		count = *body.Count
	}
	o.count = replaceable(count, len(g.Winners), g.WinnerCount)
	return o, nil
}

func location(g row) string { return "/api/v1/giveaways/" + g.ID }

func showEntry(e entry) gen.GiveawayEntry {
	return gen.GiveawayEntry{UserID: e.UserID, Entries: e.Entries, EnteredAt: e.EnteredAt}
}

func showDraw(d record) gen.GiveawayDraw {
	by := auth.Stored("", d.TokenID)
	return gen.GiveawayDraw{
		Round:           d.Round,
		DrawnAt:         d.DrawnAt,
		Seed:            hex.EncodeToString(d.Seed),
		EntriesHash:     hex.EncodeToString(d.EntriesHash),
		EntryCount:      d.EntryCount,
		ExcludedUserIds: d.Excluded,
		Winners:         d.Drawn,
		ReplacedUserIds: d.Replaced,
		Reason:          d.Reason,
		Origin:          gen.EventOrigin{Type: by.Type(), TokenID: by.TokenID(), KeyID: by.KeyID()},
	}
}

// showChange is show for an event, which also lists the changed members and says who changed them.
func showChange(g row, changed []string, author *string) gen.GiveawayChange {
	return gen.GiveawayChange{Giveaway: show(g), Changed: changed, AuthorID: author}
}

func show(g row) gen.Giveaway {
	return gen.Giveaway{
		ID:           g.ID,
		Status:       g.Status,
		Prize:        g.Prize,
		Description:  g.Description,
		WinnerCount:  g.WinnerCount,
		EntrantCount: g.EntrantCount,
		EntryCount:   g.EntryCount,
		Winners:      g.Winners,
		HostID:       g.HostID,
		ChannelID:    g.ChannelID,
		MessageID:    g.MessageID,
		StartsAt:     g.StartsAt,
		EndsAt:       g.EndsAt,
		EndedAt:      g.EndedAt,
		Metadata:     g.Metadata,
		CreatedAt:    g.CreatedAt,
		UpdatedAt:    g.UpdatedAt,
		PostProblem:  g.PostProblem,
	}
}
