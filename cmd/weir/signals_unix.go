//go:build unix

package main

import (
	"os"
	"syscall"
)

// swapSignal starts another process that serves in place of this one.
var swapSignal os.Signal = syscall.SIGUSR2
