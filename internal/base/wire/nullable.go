package wire

import "github.com/oapi-codegen/nullable"

// OrNil returns the value of a JSON member, or nil if the member is null or absent.
func OrNil[T any](n nullable.Nullable[T]) *T {
	if v, err := n.Get(); err == nil {
		return &v
	}
	return nil
}
