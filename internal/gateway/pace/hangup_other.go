//go:build !linux

package pace

import (
	"errors"
	"net"
)

// awaitHangup cannot tell here.
func awaitHangup(net.Conn) error { return errors.ErrUnsupported }

// hasHungUp cannot tell here.
func hasHungUp(net.Conn) bool { return false }
