//go:build slow && !race

package main

// memoryFactor is 1 without the race detector.
const memoryFactor = 1
