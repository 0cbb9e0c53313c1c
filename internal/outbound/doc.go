// Package outbound holds events, their deliveries to webhooks, and calls of the chat platform.
//
// It is one of the layers of internal, each of which is a directory. Its packages import one
// another, access and base, never a layer above.
package outbound
