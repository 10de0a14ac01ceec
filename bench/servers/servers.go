// Package servers starts the servers that a benchmark asks, one process each, and reads the CPU
// that a process has used. It needs Linux.
package servers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Set are servers that were started. The zero value is ready for use, by one goroutine.
type Set struct {
	Dir string // in which they run

	running []*exec.Cmd
	err     error
}

// Start starts a program as a server, and returns its process id when it listens at an address.
// After the first error it does nothing and returns 0.
func (s *Set) Start(ctx context.Context, name, at string, env []string, program string, args ...string) (pid int) {
	if s.err != nil {
		return 0
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env, cmd.Stderr = s.Dir, append(os.Environ(), env...), os.Stderr
	if s.err = cmd.Start(); s.err != nil {
		return 0
	}
	s.running = append(s.running, cmd)
	if err := await(at); err != nil {
		s.err = fmt.Errorf("start %s: %w", name, err)
	}
	return cmd.Process.Pid
}

// Err returns the first error of Start.
func (s *Set) Err() error { return s.err }

// Stop kills all of them.
func (s *Set) Stop() {
	for _, cmd := range slices.Backward(s.running) {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

// await waits until something listens.
func await(at string) error {
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.DialTimeout("tcp", at, time.Second)
		if err == nil {
			return conn.Close()
		}
		if time.Now().After(end) {
			return err
		}
	}
}

// Build builds a package of a module as a program.
func Build(ctx context.Context, module, to, pkg string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-C", module, "-buildvcs=false", "-o", to, pkg)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return nil
}

// CPU returns the CPU time that processes have used together.
func CPU(pids ...int) (all time.Duration, err error) {
	for _, pid := range pids {
		one, err := cpuOf(pid)
		if err != nil {
			return 0, err
		}
		all += one
	}
	return all, nil
}

func cpuOf(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, after, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(after)
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat: %q", pid, text)
	}
	const tick = 10 * time.Millisecond // USER_HZ is 100 on Linux
	user, err := strconv.Atoi(fields[11])
	system, sysErr := strconv.Atoi(fields[12])
	return time.Duration(user+system) * tick, errors.Join(err, sysErr)
}

// Turns has each contestant take its turn, all of them so often one after another, and returns the
// figures of each.
func Turns[C fmt.Stringer, F any](turns int, all []C, turn func(C) (F, error)) ([][]F, error) {
	measured := make([][]F, len(all))
	for range turns {
		for i, c := range all {
			f, err := turn(c)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c, err)
			}
			measured[i] = append(measured[i], f)
		}
	}
	return measured, nil
}

// Median returns the median of a figure of several turns.
func Median[T any](all []T, of func(T) float64) float64 {
	values := make([]float64, len(all))
	for i, f := range all {
		values[i] = of(f)
	}
	slices.SortFunc(values, cmp.Compare)
	return values[len(values)/2]
}
