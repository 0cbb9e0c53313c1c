//go:build !race

package main

// memoryFactor is 1: this program keeps no record of its memory accesses.
const memoryFactor = 1
