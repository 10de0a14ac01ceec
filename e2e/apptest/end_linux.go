package apptest

import "syscall"

// endsWithUs makes the kernel end the program when the test binary dies, however that dies.
func endsWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM} }
