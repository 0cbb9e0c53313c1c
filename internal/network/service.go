// Package network looks users up in what the guilds have reported together. It
// is the one place that reads across guilds, and it knows nothing of reporters.
package network
