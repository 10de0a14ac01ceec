//go:build unix

package main

import (
	"os"
	"syscall"
)

// swapSignal starts another process that serves in place of this one.
var swapSignal os.Signal = syscall.SIGUSR2

// drainSignal ends a process as SIGTERM does. The process before it sends it if that was to end
// when this one took over: a second SIGTERM, after that of a service manager, would end this one at
// once.
var drainSignal os.Signal = syscall.SIGUSR1
