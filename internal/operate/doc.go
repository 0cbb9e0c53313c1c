// Package operate holds what operators run: diagnosis, monitoring, background work, the check after
// a restore, and converters for other bots' data.
//
// It is one of the layers of internal, each of which is a directory. Its packages import one
// another, server, service, outbound, access and base, never a layer above.
package operate
