//go:build race

package testutil

// Race says whether the tests run with the race detector, whose frames are larger.
const Race = true
