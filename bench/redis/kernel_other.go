//go:build !linux

package main

import (
	"errors"
	"time"
)

func pin(pid, core int) error { return errors.New("this system is not Linux") }

// ownCPU returns 0 on this system.
func ownCPU() time.Duration { return 0 }
