package wire

import "github.com/oapi-codegen/nullable"

// OrNil returns the value of a member that may be null or absent; nil where it is one of these.
func OrNil[T any](n nullable.Nullable[T]) *T {
	if v, err := n.Get(); err == nil {
		return &v
	}
	return nil
}
