//go:build !linux

package redistest

import (
	"errors"
	"syscall"
)

func diesWithUs() *syscall.SysProcAttr { return nil }

func (p *process) pause() error { return errors.ErrUnsupported }

func (p *process) resume() error { return errors.ErrUnsupported }
