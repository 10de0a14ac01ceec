//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package upstream

// newStep returns nil: what Ask promises is done one thing after the other.
func (c *Conn) newStep() func(fd uintptr) bool { return nil }
