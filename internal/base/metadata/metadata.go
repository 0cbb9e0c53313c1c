// Package metadata defines the metadata of a resource: values by name that callers store with a
// case, ticket, giveaway or member for their own use. Guildhall never reads them.
package metadata

import (
	"bytes"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"guildhall/internal/base/fault"
)

// The limits of a resource's metadata.
const (
	maxMembers = 20
	maxSize    = 8 << 10 // bytes of its JSON
)

// Values are the metadata of a resource. The contract's schema bounds each name and
// each value.
type Values map[string]string

// Change describes a change of metadata: a name with a value is set, a name with nil is removed,
// and any other name stays.
type Change map[string]*string

// With returns v after the change, and leaves v unchanged. It returns a Refused fault if the result
// differs from v and exceeds the limits.
func (v Values) With(c Change) (Values, error) {
	merged, differs := v.Merge(c)
	if !differs {
		return v, nil
	}
	return merged, merged.Check()
}

// Merge returns v after the change and whether the result differs from v. It leaves v unchanged.
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

// Check returns a Refused fault if v exceeds the limits of a resource.
func (v Values) Check() error { return v.CheckUpTo(maxMembers) }

// CheckUpTo is Check with most as the limit of names.
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

// UnmarshalJSON reads a Change and applies it to v. So decoding a guild record into the stored row
// changes only the names that the record mentions.
func (v *Values) UnmarshalJSON(text []byte) error {
	var c Change
	if err := json.Unmarshal(text, &c); err != nil {
		return err
	}
	*v = v.merge(c)
	return nil
}

// MarshalJSON returns an object, never null.
func (v Values) MarshalJSON() ([]byte, error) { return v.text() }

// text returns the JSON without escapes for HTML.
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

// Value returns the JSON for a column.
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

// Lookup is the name and the value by which a list of resources is narrowed.
type Lookup struct{ Name, Value string }

// ParseLookup reads a name and a value with a colon between them. The first colon divides:
// names hold none. It returns nil for nil.
func ParseLookup(text *string) *Lookup {
	if text == nil {
		return nil
	}
	name, value, _ := strings.Cut(*text, ":")
	return &Lookup{Name: name, Value: value}
}
