//go:build !unix

package main

import "os"

// swapSignal is nil: this system has no such signal.
var swapSignal os.Signal
