//go:build slow && race

package main

// memoryFactor is how many times as much memory a program with the race detector uses.
const memoryFactor = 5
