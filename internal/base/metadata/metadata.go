// Package metadata is what callers keep with a resource for themselves: values by
// name, which nobody else reads. Cases, tickets and giveaways have them.
package metadata

import (
	"bytes"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"maps"

	"guildhall/internal/base/fault"
)

// How much of it a resource can have.
const (
	maxMembers = 20
	maxSize    = 8 << 10 // of its JSON
)

// Values are the metadata of a resource. The contract's schema bounds each name and
// each value.
type Values map[string]string

// Change is what is wished for: a name with a value is set, one with nil is taken
// away, and what is not named stays.
type Change map[string]*string

// With is v after the change; it leaves v as it is. It is Refused where the result is too
// much and differs.
func (v Values) With(c Change) (Values, error) {
	merged, differs := v.Merge(c)
	if !differs {
		return v, nil
	}
	return merged, merged.Check()
}

// Merge returns v after the change, and whether that differs from v, which it leaves as it is.
func (v Values) Merge(c Change) (merged Values, differs bool) {
	merged = v.merge(c)
	return merged, !maps.Equal(v, merged)
}

func (v Values) merge(c Change) Values {
	merged := make(Values, len(v)+len(c))
	maps.Copy(merged, v)
	for name, value := range c {
		if value == nil {
			delete(merged, name)
		} else {
			merged[name] = *value
		}
	}
	return merged
}

// Check is Refused where there is more than a resource can have.
func (v Values) Check() error { return v.CheckUpTo(maxMembers) }

// CheckUpTo is Check for a resource whose metadata may have most names.
func (v Values) CheckUpTo(most int) error {
	if n := len(v); n > most {
		return fault.New(fault.Refused, "too_much_metadata", "The metadata would have %d members, %d more than there can be.", n, n-most)
	}
	text, err := v.text()
	if err != nil {
		return err
	}
	if n := len(text); n > maxSize {
		return fault.New(fault.Refused, "too_much_metadata", "The metadata would be %d bytes of JSON; %d is the most.", n, maxSize)
	}
	return nil
}

// UnmarshalJSON makes the change that text describes: a record of a guild, read over
// the row that is there, changes what it names.
func (v *Values) UnmarshalJSON(text []byte) error {
	var c Change
	if err := json.Unmarshal(text, &c); err != nil {
		return err
	}
	*v = v.merge(c)
	return nil
}

// MarshalJSON is never null.
func (v Values) MarshalJSON() ([]byte, error) { return v.text() }

// text is the JSON, without escapes for HTML.
func (v Values) text() ([]byte, error) {
	if len(v) == 0 {
		return []byte("{}"), nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(map[string]string(v)); err != nil {
		return nil, fault.Wrap(err, "write metadata")
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// Value is the JSON for a column.
func (v Values) Value() (driver.Value, error) {
	text, err := v.text()
	return string(text), err
}

// Scan reads a column.
func (v *Values) Scan(src any) error {
	*v = nil
	text, ok := src.([]byte)
	if !ok {
		return fmt.Errorf("metadata: a column holds %T", src)
	}
	if string(text) == "{}" {
		return nil
	}
	return json.Unmarshal(text, (*map[string]string)(v))
}
