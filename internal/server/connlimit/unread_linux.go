package connlimit

import (
	"syscall"
	"time"
)

// tcpUserTimeout is TCP_USER_TIMEOUT, which package syscall does not name.
const tcpUserTimeout = 18

// DropUnread makes the kernel drop a connection, and the data it holds for it, when the client has
// acknowledged nothing for unreadTimeout. Accepted connections inherit the option from their
// listener, and it stays in force after they are closed.
func DropUnread(_, _ string, c syscall.RawConn) error {
	var err error
	if e := c.Control(func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(unreadTimeout/time.Millisecond))
	}); e != nil {
		return e
	}
	return err
}
