//go:build !linux

package handover

import (
	"fmt"
	"os"
	"syscall"
)

// Start returns an error that wraps ErrUnsupported.
func Start(c Command, _ []Socket) (*Next, error) {
	return nil, fmt.Errorf("start the next process, %s: %w", c.Path, ErrUnsupported)
}

func inherit(*inheritance) (*Previous, error) { return nil, nil }

func (l *link) sendFile(syscall.Conn) error { return ErrUnsupported }

func (l *link) receiveFile() (*os.File, error) { return nil, ErrUnsupported }

func (l *link) receiveLink() (*link, error) { return nil, ErrUnsupported }

func filesOf([]byte) ([]*os.File, error) { return nil, nil }

func isReset(error) bool { return false }
