// Package outbound holds what leaves by itself: events, their deliveries, and calls of the chat platform.
//
// It is one of the six floors of internal, each a folder. Its packages import one
// another and access and base, never a floor above.
package outbound
