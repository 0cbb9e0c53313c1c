package transfer

import (
	"encoding/json"
	"errors"

	"guildhall/internal/base/fault"
	"guildhall/internal/base/wire"
)

// judge computes Is, the row that results from applying the record to the stored row, and returns
// an error if that row is not allowed. same reports whether nothing changes that a record of the
// row would show.
func (b *batch[R]) judge(c *Call, row *Row[R]) (same bool, err error) {
	unless, err := b.expected(row)
	if err != nil {
		return false, err
	}
	texts := [][]byte{row.record.Text}
	if _, named := row.record.Members["guild_id"]; !named {
		texts = append(texts, []byte(`{"guild_id":"`+c.By.GuildID+`"}`))
	}
	if row.Was != nil {
		row.Is = clone(*row.Was)
	} else {
		row.Is = b.kind.New(c.Now)
		if err := lacks(b.needed, row.record.Members); err != nil {
			return false, err
		}
	}
	for _, text := range texts {
		if err := json.Unmarshal(text, &row.Is); err != nil {
			return false, fault.Wrap(err, "read a record that has been checked")
		}
	}
	if row.Ignored {
		return true, nil
	}
	if err := b.Revise(c, row); err != nil || row.Was == nil {
		if errors.Is(err, ErrNothing) {
			return true, nil
		}
		return false, err
	}
	if b.Counted != nil && *b.Counted.Number(&row.Is) != *b.Counted.Number(row.Was) {
		return false, Wrong("number", "never changes; it is %d", *b.Counted.Number(row.Was))
	}
	if b.Points != nil && c.Import != nil {
		if err := b.mix(c.Import.Balances, row); err != nil {
			return false, err
		}
	}
	was, err := json.Marshal(row.Was)
	if err != nil {
		return false, err
	}
	is, err := json.Marshal(&row.Is)
	if err != nil {
		return false, err
	}
	same = string(was) == string(is)
	if !same && unless && b.Points != nil && c.Import == nil {
		return false, changedFault("it is there and last changed at %s: send that as if_updated_at", b.Shown(row.Was).UpdatedAt)
	}
	return same, nil
}

// maxPoints is the most points that a row can have.
const maxPoints = 1<<53 - 1

// mix combines the record's points with the stored ones, as the --balances flag of the import says.
func (b *batch[R]) mix(how Balances, row *Row[R]) error {
	was, is := *b.Points(row.Was), b.Points(&row.Is)
	switch how {
	case Keep:
		row.kept = *is != was
		*is = was
	case Higher:
		*is = max(was, *is)
	case Add:
		if *is > maxPoints-was {
			return Wrong("", "what is there and what is added are more than %d", int64(maxPoints))
		}
		*is += was
	case Set:
	}
	return nil
}

// expected checks a record's if_updated_at against the stored row; unless reports whether the
// record has no such condition.
func (b *batch[R]) expected(row *Row[R]) (unless bool, err error) {
	want, given := row.record.Members["if_updated_at"]
	switch {
	case !given:
		return true, nil
	case want == nil && row.Was != nil:
		if at := b.Shown(row.Was).UpdatedAt; at != nil {
			return false, changedFault("it is there and last changed at %s", at)
		}
		return false, changedFault("it is there")
	case want == nil:
		return false, nil
	case row.Was == nil:
		return false, changedFault("it is not there")
	}
	text, _ := want.(string)
	at, err := wire.ParseTime(text)
	if err != nil {
		return false, fault.Wrap(err, "read a record that has been checked")
	}
	if is := b.Shown(row.Was).UpdatedAt; !is.Alike(wire.At(at)) {
		return false, changedFault("it last changed at %s", is)
	}
	return false, nil
}

func changedFault(format string, args ...any) error {
	return fault.New(fault.Refused, "record_changed", format, args...)
}

// lacks returns an error that names the required members which a new row lacks.
func lacks(needed []string, given map[string]any) error {
	for _, name := range needed {
		if _, ok := given[name]; !ok {
			return Wrong(name, "is required of what is new")
		}
	}
	return nil
}

// result sets the result of a row's record.
func (b *batch[R]) result(row *Row[R]) {
	r := row.record
	switch {
	case row.Err != nil:
		r.Result, r.Err = RefusedIs, row.Err
		if row.Was != nil {
			r.Shown = b.Shown(row.Was)
		} else {
			r.ID = row.named // not an id that the row would have been given
		}
		return
	case row.kept:
		r.Result = Kept
	case !row.stored:
		r.Result = Unchanged
	case row.Was == nil:
		r.Result = Created
	default:
		r.Result = Updated
	}
	r.Shown = b.Shown(&row.Is)
}
