//go:build !linux

package connlimit

import "syscall"

// DropUnread leaves it to the kernel when to give up a connection whose other
// side takes nothing.
func DropUnread(_, _ string, _ syscall.RawConn) error { return nil }
