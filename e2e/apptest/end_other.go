//go:build !linux

package apptest

import "syscall"

func endsWithUs() *syscall.SysProcAttr { return nil }
