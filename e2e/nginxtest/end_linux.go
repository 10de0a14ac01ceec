package nginxtest

import "syscall"

// endsWithUs makes the kernel terminate nginx's master, and with it the worker, when the test
// binary ends, however it ends.
func endsWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM} }
