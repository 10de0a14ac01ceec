package main

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// pin restricts every thread of a process to one core. Later threads inherit that.
func pin(pid, core int) error {
	var set unix.CPUSet
	set.Set(core)
	for range 2 { // a thread that is just being started is found the second time
		threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			return err
		}
		for _, t := range threads {
			id, err := strconv.Atoi(t.Name())
			if err != nil {
				return err
			}
			if err := unix.SchedSetaffinity(id, &set); err != nil && err != unix.ESRCH {
				return fmt.Errorf("pin thread %d to core %d: %w", id, core, err)
			}
		}
	}
	return nil
}

// ownCPU returns the processor time that this process has used.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
