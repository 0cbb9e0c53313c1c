package tickets

import (
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"guildhall/internal/base/fault"
)

// attachment is a file of a message. The platform serves it under a URL that expires after a day.
type attachment struct {
	Name        string  `json:"name"`
	URL         string  `json:"url"`
	ContentType *string `json:"content_type,omitempty"`
	Size        *int64  `json:"size,omitempty"`
}

// attachments is stored as a JSON array, [] for a message without any.
type attachments []attachment

// Scan reads the column.
func (a *attachments) Scan(src any) error {
	text, ok := src.([]byte)
	if !ok {
		return fmt.Errorf("attachments are %T and not JSON", src)
	}
	return fault.Wrap(json.Unmarshal(text, a), "read attachments")
}

// Value writes the column.
func (a attachments) Value() (driver.Value, error) {
	text, err := a.MarshalJSON()
	return string(text), err
}

// sameFiles reports whether two messages have the same files. The query of a URL is ignored: the
// platform signs the URL anew each time it returns the message.
func (a attachments) sameFiles(b attachments) bool {
	return slices.EqualFunc(a, b, func(a, b attachment) bool {
		pathA, _, _ := strings.Cut(a.URL, "?")
		pathB, _, _ := strings.Cut(b.URL, "?")
		return pathA == pathB && a.Name == b.Name
	})
}

// MarshalJSON writes an array, also for nil.
func (a attachments) MarshalJSON() ([]byte, error) {
	if a == nil {
		return []byte("[]"), nil
	}
	return json.Marshal([]attachment(a))
}
