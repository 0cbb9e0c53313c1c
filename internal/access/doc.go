// Package access holds who may ask, how often, and what is remembered of it.
//
// It is one of the six floors of internal, each a folder. Its packages import one
// another and base, never a floor above.
package access
