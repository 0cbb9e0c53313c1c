// Package records is how the operator's own bot keeps what a guild has: up to 500
// records in one transaction, each of which makes a thing or changes it. It knows the
// kinds and the order in which their rows are locked; what a record is and does, the
// domains say (transfer.Writer).
package records

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"

	"guildhall/gen"
	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/schema"
	"guildhall/internal/service/cases"
	"guildhall/internal/service/economy"
	"guildhall/internal/service/giveaways"
	"guildhall/internal/service/guilds"
	"guildhall/internal/service/levelling"
	"guildhall/internal/service/members"
	"guildhall/internal/service/tickets"
	"guildhall/internal/service/transfer"
)

// Service implements the operations on records.
type Service struct{}

// Curve is levelling's, as guilds show it.
var Curve = guilds.Curve{Base: levelling.Base, Linear: levelling.Linear, Quadratic: levelling.Quadratic}

// Batches are the kinds of record in the order in which their rows are locked:
// what an adjustment locks before what a case or a ticket does, since those hold the
// guild's row as well.
func Batches() []transfer.Batch {
	return []transfer.Batch{
		transfer.NewBatch(members.Records),
		transfer.NewBatch(economy.Wallets),
		transfer.NewBatch(economy.References),
		transfer.NewBatch(levelling.Records),
		transfer.NewBatch(giveaways.Records),
		transfer.NewBatch(giveaways.Entrants),
		transfer.NewBatch(guilds.Records(Curve)),
		transfer.NewBatch(guilds.Settings(Curve)),
		transfer.NewBatch(cases.Records),
		transfer.NewBatch(tickets.Records),
		transfer.NewBatch(tickets.Transcripts),
	}
}

// first are the kinds that come before all others where the guild is not there yet.
var first = []string{"guild", "settings"}

// membersKey is where a context has the members of the records that are checked.
type membersKey struct{}

// Check holds each record of a body against the schema of its kind, before the unit
// of the call opens, and gives each the guild of the call where it names none. Its
// findings are 400, whatever on_refusal says. WriteRecords finds the members in the
// context, so that it does not read them again.
func Check(ctx context.Context, body any) (context.Context, error) {
	request, _ := body.(map[string]any)
	list, _ := request["records"].([]any)
	kinds := make(map[string]transfer.Batch)
	for _, b := range Batches() {
		kinds[b.Name()] = b
	}
	guild, given := auth.Acting(ctx).GuildID, make([]map[string]any, len(list))
	var found []schema.Problem
	for i, value := range list {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		record, _ := value.(map[string]any)
		name, _ := record["record"].(string)
		b, known := kinds[name]
		if !known {
			found = append(found, schema.Problem{Place: place(i) + "/record", Text: "is not a kind that is taken"})
			continue
		}
		for _, p := range b.Check(value) {
			found = append(found, p.Under(place(i)))
		}
		if _, named := record["guild_id"]; !named {
			record["guild_id"] = guild
		}
		given[i] = record
	}
	if len(found) > 0 {
		return nil, fault.New(fault.Invalid, "invalid_request", "%s", schema.Describe(found))
	}
	return context.WithValue(ctx, membersKey{}, given), nil
}

func place(i int) string { return "body /records/" + strconv.Itoa(i) }

// WriteRecords makes and changes what the records name, all of them or, where
// refused ones are skipped, those that can be.
func (*Service) WriteRecords(ctx context.Context, r gen.WriteRecordsRequestObject) (gen.WriteRecordsResponseObject, error) {
	tx, by := db.Write(ctx), auth.Acting(ctx)
	now, err := tx.Now(ctx)
	if err != nil {
		return nil, err
	}
	c := &transfer.Call{By: by, Now: now, Tell: r.Body.Tell == nil || *r.Body.Tell}
	given, _ := ctx.Value(membersKey{}).([]map[string]any)
	if len(given) != len(r.Body.Records) {
		return nil, errors.New("records that have not been checked")
	}
	batches, list, err := sortOut(c, r.Body.Records, given)
	if err != nil {
		return nil, err
	}
	guild, taken, err := guildRecord(ctx, tx, c, list)
	if err != nil {
		return nil, err
	}
	if guild != nil {
		batches = MakingFirst(batches)
	}
	if err := Write(ctx, tx, c, batches, func() error {
		if guild != nil && guild.Err != nil {
			return refusal(list, false) // nothing can be skipped without the guild
		}
		return refusal(list, true)
	}); err != nil {
		return nil, err
	}
	if taken && guild.Result == transfer.Unchanged {
		guild.Result = transfer.Updated // it is there again
	}
	skip := r.Body.OnRefusal != nil && *r.Body.OnRefusal == gen.OnRefusalSkip
	if err := refusal(list, skip); err != nil {
		return nil, err
	}
	if c.Tell {
		for _, b := range batches {
			if err := b.Tell(ctx, tx, c); err != nil {
				return nil, err
			}
		}
	}
	data := make([]gen.WrittenRecord, len(list))
	for i, rec := range list {
		if at, touched := c.Touched[transfer.Ref{Kind: rec.kind, Guild: by.GuildID, ID: rec.ID}]; touched {
			rec.UpdatedAt = &at
		}
		data[i] = show(rec, i)
	}
	return gen.WriteRecords200JSONResponse{Data: data}, nil
}

// callRecord is a record of the call in its place.
type callRecord struct {
	transfer.Record
	kind string
}

// sortOut gives each record to the batch of its kind.
func sortOut(c *transfer.Call, texts []json.RawMessage, given []map[string]any) ([]transfer.Batch, []*callRecord, error) {
	batches, byName := Batches(), make(map[string]transfer.Batch)
	for _, b := range batches {
		byName[b.Name()] = b
	}
	list := make([]*callRecord, len(texts))
	for i, text := range texts {
		kind, _ := given[i]["record"].(string)
		if given[i]["guild_id"] != c.By.GuildID {
			return nil, nil, fault.New(fault.Invalid, "invalid_request", "%s/guild_id: must be left out, or be the guild of the call, %s", place(i), c.By.GuildID)
		}
		if id, named := given[i]["id"]; kind == "guild" && named && id != c.By.GuildID {
			return nil, nil, fault.New(fault.Invalid, "invalid_request", "%s/id: must be left out, or be the guild of the call, %s", place(i), c.By.GuildID)
		}
		list[i] = &callRecord{Record: transfer.Record{Text: text, Members: given[i]}, kind: kind}
		again, err := byName[kind].Add(c, &list[i].Record)
		if err != nil {
			return nil, nil, err
		}
		if again {
			return nil, nil, fault.New(fault.Invalid, "invalid_request", "%s: what it names stands in this call already", place(i))
		}
	}
	return batches, list, nil
}

// guildRecord returns the record of a guild that is not there, or is being removed, by which
// the call makes it or takes it back; nil where the guild is there. It takes back a guild that
// is being removed. It is NotFound where no record of the call does either.
func guildRecord(ctx context.Context, tx *db.Tx, c *transfer.Call, list []*callRecord) (rec *callRecord, taken bool, err error) {
	presence, err := auth.PresenceOf(ctx, tx, c.By.GuildID)
	if err != nil || presence == auth.Present {
		return nil, false, err
	}
	i := slices.IndexFunc(list, func(rec *callRecord) bool { return rec.kind == "guild" })
	if i < 0 {
		gone := presence.Gone(c.By.GuildID)
		return nil, false, gone.With("%s No record of the call makes it or takes it back.", gone.Message)
	}
	taken, err = guilds.Restore(ctx, tx, c.By.GuildID)
	if fault.Is(err, "not_found") {
		err = nil
	}
	return list[i], taken, err
}

// MakingFirst are the batches in the order for a guild that is not there yet.
func MakingFirst(batches []transfer.Batch) (ordered []transfer.Batch) {
	for _, before := range []bool{true, false} {
		for _, b := range batches {
			if slices.Contains(first, b.Name()) == before {
				ordered = append(ordered, b)
			}
		}
	}
	return ordered
}

// Write writes the batches in their order. The counters are held before the first
// rows that are numbered, if any may be made. It ends where stop says so, which is
// asked after each.
func Write(ctx context.Context, tx *db.Tx, c *transfer.Call, batches []transfer.Batch, stop func() error) error {
	counts := false
	for _, b := range batches {
		may, err := b.MayCount(ctx, tx, c)
		if err != nil {
			return err
		}
		counts = counts || may
	}
	for _, b := range batches {
		if counts && b.Counts() && !c.Look {
			if err := c.HoldCounters(ctx, tx); err != nil {
				return err
			}
			counts = false
		}
		if err := b.Write(ctx, tx, c); err != nil {
			return err
		}
		if err := stop(); err != nil {
			return err
		}
	}
	return c.RaiseCounters(ctx, tx)
}

// refusal is why the call is refused: for the first record that is, unless such
// records are skipped. A breach of the contract comes before a refusal, and is never
// skipped.
func refusal(list []*callRecord, skip bool) error {
	var first error
	for i, rec := range list {
		if rec.Err == nil {
			continue
		}
		err := transfer.Fault(rec.Err, place(i))
		f, known := fault.As(err)
		if !known || f.Kind == fault.Invalid {
			return err
		}
		if first == nil {
			first = err
		}
	}
	if skip {
		return nil
	}
	return first
}

func show(rec *callRecord, i int) gen.WrittenRecord {
	w := gen.WrittenRecord{Record: rec.kind, Result: rec.Result, UpdatedAt: rec.UpdatedAt}
	if rec.ID != "" {
		w.ID = &rec.ID
	}
	if rec.Number != nil && *rec.Number != 0 {
		number := int(*rec.Number)
		w.Number = &number
	}
	if rec.Err == nil {
		return w
	}
	if f, refused := fault.As(transfer.Fault(rec.Err, place(i))); refused {
		w.Code, w.Message = &f.Code, &f.Message
	}
	return w
}
