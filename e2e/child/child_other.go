//go:build !linux

package child

import "syscall"

// dieBy does nothing: other systems cannot signal a child.
func dieBy(syscall.Signal) *syscall.SysProcAttr { return nil }
