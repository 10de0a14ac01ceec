package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// endWithUs makes the kernel kill a child when this process ends without stopping it.
func endWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// cpuTime returns the processor time that all threads of a process have used, by the kernel's clock
// of the process.
func cpuTime(pid int) (time.Duration, error) {
	const scheduled = 2 // CPUCLOCK_SCHED of <linux/posix-timers.h>
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid)<<3|scheduled, &t); err != nil {
		return 0, fmt.Errorf("read the processor time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// discard drops n bytes from c without copying them.
func discard(c *net.TCPConn, n int64) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	room := make([]byte, 1<<20) // not written to
	err = raw.Read(func(fd uintptr) bool {
		for n > 0 {
			k, _, err := unix.Recvfrom(int(fd), room[:min(n, int64(len(room)))], unix.MSG_TRUNC|unix.MSG_DONTWAIT)
			switch {
			case errors.Is(err, unix.EAGAIN):
				return false
			case err != nil:
				failed = err
				return true
			case k == 0:
				failed = io.ErrUnexpectedEOF
				return true
			}
			n -= int64(k)
		}
		return true
	})
	return errors.Join(err, failed)
}

// A poll is an epoll instance.
type poll struct {
	fd     int
	events [128]unix.EpollEvent
}

func newPoll() (*poll, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	return &poll{fd: fd}, err
}

func (p *poll) add(fd int) error {
	return unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
}

// wait returns the events of readable connections.
func (p *poll) wait() ([]unix.EpollEvent, error) {
	for {
		n, err := unix.EpollWait(p.fd, p.events[:], -1)
		if err == unix.EINTR {
			continue
		}
		return p.events[:max(0, n)], err
	}
}

// answerSmall is an upstream for small answers: one loop, two system calls a request. It gives the
// answer to any input that ends like a head.
func answerSmall(address string, answer []byte) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	listener, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	unix.SetsockoptInt(listener, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if err := unix.Bind(listener, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}); err != nil {
		return fmt.Errorf("listen on %s: %w", address, err)
	}
	if err := unix.Listen(listener, 4096); err != nil {
		return err
	}
	p, err := newPoll()
	if err != nil {
		return err
	}
	if err := p.add(listener); err != nil {
		return err
	}
	buf := make([]byte, 64<<10)
	for {
		ready, err := p.wait()
		if err != nil {
			return err
		}
		for _, e := range ready {
			fd := int(e.Fd)
			if fd == listener {
				if fd, _, err = unix.Accept4(listener, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC); err == nil {
					unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
					err = p.add(fd)
				}
				if err != nil {
					return err
				}
				continue
			}
			n, err := unix.Read(fd, buf)
			if err == unix.EAGAIN {
				continue
			}
			if err != nil || n == 0 {
				unix.Close(fd)
			} else if bytes.HasSuffix(buf[:n], headEnd) {
				unix.Write(fd, answer)
			}
		}
	}
}

// A steady is a load with a constant rate, however fast it is answered: if no connection is free a
// request waits, and the wait counts.
type steady struct {
	poll    *poll
	request []byte
	conns   map[int]time.Time // when the request in flight was due, zero if there is none
	free    []int
	room    []byte
	took    []time.Duration
}

// driveSteadily sends request at a rate over some connections, and returns how long each took from
// the time it was due.
func driveSteadily(ctx context.Context, address string, request []byte, conns int, rate float64, length time.Duration) ([]time.Duration, error) {
	p, err := newPoll()
	if err != nil {
		return nil, err
	}
	defer unix.Close(p.fd)
	s := &steady{poll: p, request: request, conns: map[int]time.Time{}, room: make([]byte, 64<<10)}
	defer s.close()
	if err := s.connect(address, conns); err != nil {
		return nil, fmt.Errorf("connect to %s: %w", address, err)
	}
	interval := time.Duration(float64(time.Second) / rate)
	clock, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	defer unix.Close(clock)
	tick := unix.NsecToTimespec(interval.Nanoseconds())
	if err := unix.TimerfdSettime(clock, 0, &unix.ItimerSpec{Interval: tick, Value: tick}, nil); err != nil {
		return nil, err
	}
	if err := p.add(clock); err != nil {
		return nil, err
	}
	begun, due := time.Now(), time.Now()
	for ctx.Err() == nil && (time.Since(begun) < length || len(s.free) < conns) {
		ready, err := p.wait()
		if err != nil {
			return nil, err
		}
		for _, e := range ready {
			if int(e.Fd) == clock {
				unix.Read(clock, s.room)
			} else if err := s.receive(int(e.Fd)); err != nil {
				return nil, err
			}
		}
		for ; len(s.free) > 0 && time.Since(due) >= 0 && due.Sub(begun) < length; due = due.Add(interval) {
			if err := s.send(due); err != nil {
				return nil, err
			}
		}
		if time.Since(begun) > length+10*time.Second {
			return nil, fmt.Errorf("%s does not answer %g requests a second", address, rate)
		}
	}
	return s.took, ctx.Err()
}

func (s *steady) connect(address string, conns int) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	for range conns {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		s.conns[fd] = time.Time{}
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
		if err := unix.Connect(fd, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}); err != nil {
			return err
		}
		if err := errors.Join(unix.SetNonblock(fd, true), s.poll.add(fd)); err != nil {
			return err
		}
		s.free = append(s.free, fd)
	}
	return nil
}

func (s *steady) close() {
	for fd := range s.conns {
		unix.Close(fd)
	}
}

// send sends a request on the connection that has been free for longest.
func (s *steady) send(due time.Time) error {
	fd := s.free[0]
	s.free = s.free[1:]
	s.conns[fd] = due
	_, err := unix.Write(fd, s.request)
	return err
}

// receive reads an answer, which fits into one read.
func (s *steady) receive(fd int) error {
	n, err := unix.Read(fd, s.room)
	if err != nil || n == 0 {
		return fmt.Errorf("an answer did not come: %w", errors.Join(err, io.ErrUnexpectedEOF))
	}
	i := bytes.Index(s.room[:n], headEnd)
	if i < 0 || !bytes.HasPrefix(s.room, []byte("HTTP/1.1 200 ")) {
		return fmt.Errorf("an answer is none:\n%s", s.room[:n])
	}
	s.took = append(s.took, time.Since(s.conns[fd]))
	s.free = append(s.free, fd)
	return nil
}
