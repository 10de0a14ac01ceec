//go:build !linux

package nginxtest

import "syscall"

func endsWithUs() *syscall.SysProcAttr { return nil }
