// Package server answers requests: the API and the dashboard, and what bounds their connections.
//
// It is one of the six floors of internal, each a folder. Its packages import one
// another and service, outbound, access and base, never a floor above.
package server
