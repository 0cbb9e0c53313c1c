//go:build !linux

package connlimit

import "syscall"

// DropUnread does nothing: on this system the kernel decides when to drop a connection whose client
// reads nothing.
func DropUnread(_, _ string, _ syscall.RawConn) error { return nil }
