//go:build !race

package testutil

// Race reports whether the tests run with the race detector, which makes stack frames larger.
const Race = false
