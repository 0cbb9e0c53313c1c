//go:build race

package main

// memoryFactor is how many times the memory a program takes that was built with
// the race detector.
const memoryFactor = 5
