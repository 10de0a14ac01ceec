//go:build !linux

package pace

import (
	"errors"
	"net"
)

// AwaitHangup cannot know on this system.
func AwaitHangup(net.Conn) error { return errors.ErrUnsupported }

// HasHungUp cannot know on this system.
func HasHungUp(net.Conn) bool { return false }
