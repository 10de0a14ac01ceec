//go:build !linux

package main

import (
	"errors"
	"time"
)

func pin(pid, core int) error { return errors.New("this system is not Linux") }

// ownCPU cannot tell here.
func ownCPU() time.Duration { return 0 }
