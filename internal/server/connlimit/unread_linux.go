package connlimit

import (
	"syscall"
	"time"
)

// tcpUserTimeout is TCP_USER_TIMEOUT, which package syscall does not name.
const tcpUserTimeout = 18

// DropUnread makes the kernel give up connections, and what it holds for them,
// when the other side takes nothing for that long. Accepted connections have it
// from their listener; it holds after they are closed, too.
func DropUnread(_, _ string, c syscall.RawConn) error {
	var err error
	if e := c.Control(func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(unreadTimeout/time.Millisecond))
	}); e != nil {
		return e
	}
	return err
}
