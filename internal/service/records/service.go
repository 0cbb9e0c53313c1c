// Package records implements WriteRecords, with which the operator's bot stores a guild's data: up
// to 500 records in one transaction, each of which creates or changes a thing. The package knows
// the kinds and the order in which their rows are locked; the domains define what a record is and
// does (transfer.Writer).
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

// Curve is the level curve of package levelling, in the form of package guilds.
var Curve = guilds.Curve{Base: levelling.Base, Linear: levelling.Linear, Quadratic: levelling.Quadratic}

// Batches returns an empty batch for each kind of record, in the order in which their rows are
// locked: the rows that an adjustment locks come before those of cases and tickets, whose writes
// also lock the guild's row.
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

// first lists the kinds that come first if the guild does not exist yet.
var first = []string{"guild", "settings"}

// membersKey is the context key of the members of checked records.
type membersKey struct{}

// Check checks each record of a body against the schema of its kind before the call's transaction,
// and sets the guild of the call in records that name none. Problems give a 400, whatever
// on_refusal says. WriteRecords gets the members from the context, so that it need not parse them
// again.
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

// WriteRecords creates and changes what the records name: all of them or, if the call skips refused
// records, all others.
func (*Service) WriteRecords(ctx context.Context, r gen.WriteRecordsRequestObject) (gen.WriteRecordsResponseObject, error) {
	tx, by := db.Write(ctx), auth.Acting(ctx)
	now, err := tx.Now(ctx)
	if err != nil {
		return nil, err
	}
	c := &transfer.Call{By: by, Now: now, Emit: r.Body.Tell == nil || *r.Body.Tell}
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
			return refusal(list, false) // without the guild nothing can be skipped
		}
		return refusal(list, true)
	}); err != nil {
		return nil, err
	}
	if taken && guild.Result == transfer.Unchanged {
		guild.Result = transfer.Updated // the guild was restored
	}
	skip := r.Body.OnRefusal != nil && *r.Body.OnRefusal == gen.OnRefusalSkip
	if err := refusal(list, skip); err != nil {
		return nil, err
	}
	if c.Emit {
		for _, b := range batches {
			if err := b.Emit(ctx, tx, c); err != nil {
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

// callRecord is a record of the call with its position.
type callRecord struct {
	transfer.Record
	kind string
}

// sortOut adds each record to the batch of its kind.
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

// guildRecord returns the record with which the call creates or restores a guild that does not
// exist or is being removed, or nil if the guild exists. It restores a guild that is being removed.
// It returns a NotFound fault if the call has no such record.
func guildRecord(ctx context.Context, tx *db.Tx, c *transfer.Call, list []*callRecord) (rec *callRecord, taken bool, err error) {
	presence, err := auth.PresenceOf(ctx, tx, c.By.GuildID)
	if err != nil || presence == auth.Present {
		return nil, false, err
	}
	i := slices.IndexFunc(list, func(rec *callRecord) bool { return rec.kind == "guild" })
	if i < 0 {
		gone := presence.Gone(c.By.GuildID)
		if presence != auth.Going {
			gone = gone.With("%s Send that record first, or in the same call.", gone.Message)
		}
		return nil, false, gone
	}
	taken, err = guilds.Restore(ctx, tx, c.By.GuildID)
	if fault.Is(err, "not_found") {
		err = nil
	}
	return list[i], taken, err
}

// MakingFirst returns the batches in the order for a guild that does not exist yet.
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

// Write writes the batches in their order. It locks the guild's counters before the first batch
// that may create numbered rows. After each batch it calls stop, and ends if stop returns an error.
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

// refusal returns the refusal of the call: that of the first refused record, unless refused records
// are skipped. A violation of the contract comes before other refusals and is never skipped.
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
