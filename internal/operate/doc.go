// Package operate holds what operators run: it examines, restores and watches an installation, and converts what comes to it.
//
// It is one of the six floors of internal, each a folder. Its packages import one
// another and server, service, outbound, access and base, never a floor above.
package operate
