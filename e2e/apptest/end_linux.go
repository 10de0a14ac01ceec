package apptest

import "syscall"

// endsWithUs makes the kernel terminate the program when the test binary ends, however it ends.
func endsWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM} }
