//go:build unix

package db

import (
	"errors"
	"syscall"
)

// ended reports whether the server has closed an idle connection, or has sent an error on it.
func (s *socket) ended() bool {
	inner, ok := s.Conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := inner.SyscallConn()
	if err != nil {
		return true
	}
	var first [1]byte
	var n int
	var none error
	err = raw.Read(func(fd uintptr) bool {
		n, _, none = syscall.Recvfrom(int(fd), first[:], syscall.MSG_PEEK)
		return true
	})
	switch {
	case err != nil, none == nil && n == 0:
		return true
	case none != nil:
		return !errors.Is(none, syscall.EAGAIN) && !errors.Is(none, syscall.EINTR)
	}
	// Besides an error, which is always the last message, Postgres may send a notice or a changed
	// setting at any time.
	return first[0] == 'E'
}
