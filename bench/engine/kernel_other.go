//go:build !linux

package main

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"
)

var errNotLinux = errors.New("this system is not Linux")

func endWithUs() *syscall.SysProcAttr { return nil }

func cpuTime(int) (time.Duration, error) { return 0, errNotLinux }

func discard(*net.TCPConn, int64) error { return errNotLinux }

func answerSmall(string, []byte) error { return errNotLinux }

type load struct{}

func openLoad(string, protocol) (*load, error) { return nil, errNotLinux }

func (*load) drive(context.Context, float64, time.Duration, time.Duration) (trial, error) {
	return trial{}, errNotLinux
}

func (*load) close() {}
