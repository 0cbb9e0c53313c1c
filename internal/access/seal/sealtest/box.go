// Package sealtest makes the keys that tests seal with.
package sealtest

import (
	"bytes"
	"testing"

	"guildhall/internal/access/seal"
)

// Box seals with the first key and opens what any of them has sealed. A key is
// made of one byte.
func Box(t testing.TB, keys ...byte) *seal.Box {
	t.Helper()
	var all [][]byte
	for _, k := range keys {
		all = append(all, bytes.Repeat([]byte{k}, seal.KeySize))
	}
	box, err := seal.New(all...)
	if err != nil {
		t.Fatal(err)
	}
	return box
}
