package child

import "syscall"

// dieBy has the kernel send a child the signal when the thread that started it ends.
func dieBy(death syscall.Signal) *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: death} }
