// Package sealtest makes keys for tests.
package sealtest

import (
	"bytes"
	"testing"

	"guildhall/internal/access/seal"
)

// Box returns a Box with one key for each byte of keys: the byte repeated.
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
