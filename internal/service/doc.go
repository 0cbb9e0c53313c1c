// Package service holds the domains, one package for each tag of the contract, and the packages
// that they share.
//
// It is one of the layers of internal, each of which is a directory. Its packages import one
// another, outbound, access and base, never a layer above.
package service
