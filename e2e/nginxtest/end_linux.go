package nginxtest

import "syscall"

// endsWithUs has the kernel tell nginx's master to end, and its worker with it, when the test binary dies, however that dies.
func endsWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM} }
