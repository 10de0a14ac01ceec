package main

import (
	"fmt"
	"syscall"
	"time"
	"unsafe"
)

const (
	threadTime = 3 // CLOCK_THREAD_CPUTIME_ID
	thisThread = 1 // RUSAGE_THREAD
)

// A meter separates a decision's own time from the time that others took while it was runnable:
// other processes, kernel threads, and the host of a virtual machine.
type meter struct {
	time  syscall.Timespec
	usage syscall.Rusage
}

// begin records the processor time of this thread, and how often it has waited.
func (m *meter) begin() {
	syscall.RawSyscall(syscall.SYS_GETRUSAGE, thisThread, uintptr(unsafe.Pointer(&m.usage)), 0)
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, threadTime, uintptr(unsafe.Pointer(&m.time)), 0)
}

// own returns the decision's own part of the time since begin: all of it if the thread waited for
// anything (a lock, a disk, a garbage collection, another thread), else the processor time that it
// used.
func (m *meter) own(took time.Duration) time.Duration {
	var now meter
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, threadTime, uintptr(unsafe.Pointer(&now.time)), 0)
	syscall.RawSyscall(syscall.SYS_GETRUSAGE, thisThread, uintptr(unsafe.Pointer(&now.usage)), 0)
	used := time.Duration(now.time.Nano() - m.time.Nano())
	if now.usage.Nvcsw != m.usage.Nvcsw || used < 0 {
		return took
	}
	return min(used, took)
}

// filesystem returns the kind of file system that holds dir.
func filesystem(dir string) string {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return "unknown"
	}
	if name, ok := map[int64]string{0xef53: "ext4", 0x58465342: "xfs", 0x9123683e: "btrfs", 0x01021994: "tmpfs", 0x794c7630: "overlayfs"}[int64(s.Type)]; ok {
		return name
	}
	return fmt.Sprintf("file system %#x", s.Type)
}
