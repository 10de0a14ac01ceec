//go:build !linux

package poller

import "net"

// Take returns c.
func Take(c net.Conn) net.Conn { return c }

func take(c net.Conn, _ uint32) net.Conn { return c }

// A Conn is what Take would have returned.
type Conn struct{}

// Below returns nil: Take returns what it is given.
func Below(net.Conn) *Conn { return nil }

// Attach does nothing: there is no poller.
func (*Conn) Attach(*Task) {}

// Mark returns nothing: there is no poller.
func (*Conn) Mark() Mark { return Mark{} }

// QuietSince reports false: there is no poller.
func (*Conn) QuietSince(Mark) bool { return false }

// Relieve does nothing: there is no poller.
func Relieve() {}

// Relieved returns 0.
func Relieved() int64 { return 0 }

type poller struct{}
