// Package server holds the two HTTP handlers, the API and the dashboard, and the limits on their
// connections.
//
// It is one of the layers of internal, each of which is a directory. Its packages import one
// another, service, outbound, access and base, never a layer above.
package server
