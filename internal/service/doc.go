// Package service holds the resources of the contract, a package each, and what they share.
//
// It is one of the six floors of internal, each a folder. Its packages import one
// another and outbound, access and base, never a floor above.
package service
