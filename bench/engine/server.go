package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A server is a running contestant, or an upstream.
type server struct {
	address string // host:port of 127.0.0.1
	pid     int    // the process that serves: nginx's worker, not its master
	logs    []string
	cmd     *exec.Cmd
	admin   string  // the address of Weir's admin listener, or off
	token   string  // the file with the token for it
	said    string  // the file with its standard error
	kept    float64 // requests a second, which the last search has found; 0: none
}

// start runs a command on one core and waits until it listens. Its access logs are in the files
// logs.
func start(ctx context.Context, w *world, core int, address string, logs []string, command ...string) (*server, error) {
	said, err := os.CreateTemp(w.dir, "said")
	if err != nil {
		return nil, err
	}
	defer said.Close()
	s := &server{address: address, logs: append(logs, said.Name()), said: said.Name()}
	s.cmd = exec.Command("taskset", append([]string{"-c", strconv.Itoa(core)}, command...)...)
	s.cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	// so that it can be truncated meanwhile
	if s.cmd.Stderr, err = os.OpenFile(said.Name(), os.O_APPEND|os.O_WRONLY, 0); err != nil {
		return nil, err
	}
	s.cmd.SysProcAttr = endWithUs()
	err = s.cmd.Start()
	s.cmd.Stderr.(*os.File).Close()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", command[0], err)
	}
	s.pid = s.cmd.Process.Pid
	if err := s.await(ctx); err != nil {
		text, _ := os.ReadFile(s.said)
		s.stop()
		return nil, fmt.Errorf("start %s: %w:\n%s", strings.Join(command, " "), err, text)
	}
	return s, nil
}

func (s *server) await(ctx context.Context) error {
	for range 200 {
		c, err := net.Dial("tcp", s.address)
		if err == nil {
			return c.Close()
		}
		if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.pid)); err != nil || strings.Contains(string(stat), ") Z ") {
			return errors.New("it ended")
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	return fmt.Errorf("no process listens on %s after 10 s", s.address)
}

// stop terminates the process, and kills it after a while.
func (s *server) stop() {
	s.cmd.Process.Signal(syscall.SIGTERM)
	late := time.AfterFunc(10*time.Second, func() { s.cmd.Process.Kill() })
	defer late.Stop()
	s.cmd.Wait()
	for _, path := range s.logs {
		os.Remove(path)
	}
}

// forget truncates the access logs, which are open for appending.
func (s *server) forget() {
	for _, path := range s.logs {
		os.Truncate(path, 0)
	}
}

// spareAddress returns an address of 127.0.0.1 that had no listener a moment ago.
func spareAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// startSelf starts this program as a child with the name, the address to listen on and args.
func startSelf(ctx context.Context, w *world, core int, name string, args ...string) (*server, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	address, err := spareAddress()
	if err != nil {
		return nil, err
	}
	return start(ctx, w, core, address, nil, append([]string{self, "child", name, address}, args...)...)
}

// keepToCore restarts this program on one core and with a nice value, unless that is already done.
// Later threads and children inherit both.
func keepToCore(core, nice int) error {
	const done = "WEIR_BENCH_ENGINE_PINNED"
	if os.Getenv(done) != "" {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	taskset, err := exec.LookPath("taskset")
	if err != nil {
		return fmt.Errorf("keep to one core: %w: install Debian's package util-linux", err)
	}
	args := append([]string{taskset, "-c", strconv.Itoa(core), "nice", "-n", strconv.Itoa(nice), self}, os.Args[1:]...)
	return fmt.Errorf("keep to core %d: %w", core, syscall.Exec(taskset, args, append(os.Environ(), done+"=1")))
}

// preferSession sets the nice value of this session, if the kernel weighs sessions (autogroup):
// then a process's nice value only counts within its session. restore undoes it.
func preferSession(nice int) (restore func(), err error) {
	const file = "/proc/self/autogroup"
	restore = func() {}
	before, err := os.ReadFile(file)
	if err != nil || nice == 0 {
		return restore, nil
	}
	_, old, ok := strings.Cut(strings.TrimSpace(string(before)), " nice ")
	if !ok {
		return restore, nil
	}
	if err := os.WriteFile(file, []byte(strconv.Itoa(nice)), 0); err != nil {
		return restore, fmt.Errorf("set the priority of this session: %w", err)
	}
	return func() { os.WriteFile(file, []byte(old), 0) }, nil
}

// memory returns one of a process's memory figures, VmRSS or VmHWM, in MiB.
func memory(pid int, name string) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	m := regexp.MustCompile(`(?m)^` + name + `:\s+(\d+) kB`).FindSubmatch(status)
	if m == nil {
		return 0, fmt.Errorf("read the memory of process %d: there is no %s", pid, name)
	}
	n, err := strconv.ParseFloat(string(m[1]), 64)
	return n / 1024, err
}

// onlyChild waits for the only child of a process and returns it.
func onlyChild(ctx context.Context, pid int) (int, error) {
	for range 100 {
		b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "task", strconv.Itoa(pid), "children"))
		if err != nil {
			return 0, err
		}
		if all := strings.Fields(string(b)); len(all) == 1 {
			return strconv.Atoi(all[0])
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return 0, fmt.Errorf("process %d has no single child", pid)
}
