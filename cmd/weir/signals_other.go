//go:build !unix

package main

import "os"

// swapSignal and drainSignal are nil: this system has no such signals.
var swapSignal, drainSignal os.Signal
