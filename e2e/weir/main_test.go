package weir

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

// runTests builds the binary, runs the tests, and removes the binary and the
// browser.
func runTests(m *testing.M) int {
	defer os.RemoveAll(binDir)
	defer chromium.close()
	if _, err := binary(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return runOnBothEngines(m)
}

// binDir is the directory of the binary under test.
var binDir = filepath.Join(os.TempDir(), fmt.Sprintf("weir-test-%d", os.Getpid()))

// binary builds the real program once.
var binary = sync.OnceValues(func() (string, error) {
	path := filepath.Join(binDir, "weir")
	args := []string{"build", "-buildvcs=false", "-o", path}
	if raced {
		// as in the Makefile, which gives the reason
		args = append(args, "-race", "-gcflags=modernc.org/...=-race=false")
	}
	out, err := exec.Command("go", append(args, "../../cmd/weir")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

// patience is how long a test waits for an event that must happen. Only a failing
// test waits that long.
const patience = 4 * time.Minute

// A process is a running program whose output is read line by line.
type process struct {
	cmd    *exec.Cmd
	stdout *lines
	stderr *lines
	done   chan struct{} // closed when it has ended
}

// launch starts cmd.
func launch(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, stdout: newLines(), stderr: newLines(), done: make(chan struct{})}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	var reading sync.WaitGroup
	reading.Go(func() { p.stdout.read(stdout) })
	reading.Go(func() { p.stderr.read(stderr) })
	go func() {
		reading.Wait()
		_ = cmd.Wait() // the status is in ProcessState
		close(p.done)
	}()
	return p, nil
}

// signal sends sig and returns the exit status, or -1 if a signal ended the process.
func (p *process) signal(sig os.Signal) (int, error) {
	if err := p.cmd.Process.Signal(sig); err != nil {
		return 0, fmt.Errorf("signal %v: %w", sig, err)
	}
	return p.wait()
}

// wait returns the exit status once the process has ended by itself, or -1 if a
// signal ended it.
func (p *process) wait() (int, error) {
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode(), nil
	case <-time.After(patience):
		return 0, fmt.Errorf("%s does not end; it printed:\n%s", p.cmd.Path, p.stderr)
	}
}

// kill ends the process with SIGKILL.
func (p *process) kill() {
	_ = p.cmd.Process.Signal(syscall.SIGKILL) // it may have ended already
	<-p.done
}

// lines collects a process's output.
type lines struct {
	mu    sync.Mutex
	text  bytes.Buffer
	more  chan struct{} // closed and replaced when text has grown
	ended bool
}

func newLines() *lines { return &lines{more: make(chan struct{})} }

func (l *lines) read(r io.Reader) {
	for s := bufio.NewReader(r); ; {
		line, err := s.ReadString('\n')
		l.mu.Lock()
		l.text.WriteString(line)
		l.ended = err != nil
		close(l.more)
		l.more = make(chan struct{})
		l.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// await returns the submatches of pattern, once the output matches it.
func (l *lines) await(pattern *regexp.Regexp) ([]string, error) {
	for timeout := time.After(patience); ; {
		l.mu.Lock()
		text, more, ended := l.text.String(), l.more, l.ended
		l.mu.Unlock()
		if m := pattern.FindStringSubmatch(text); m != nil {
			return m, nil
		}
		if ended {
			return nil, fmt.Errorf("no line matches %v in:\n%s", pattern, text)
		}
		select {
		case <-more:
		case <-timeout:
			return nil, fmt.Errorf("waited %v in vain for %v in:\n%s", patience, pattern, text)
		}
	}
}

// listening matches the line of the start-up block with the public listener's URL.
var listening = regexp.MustCompile(`(?m)^listening +(https?://\S+)`)

// adminAt matches the admin listener's URL.
var adminAt = regexp.MustCompile(`(?m)^admin +(https?://[^\s/,]+)`)

// ready is the last line of the start-up block.
var ready = regexp.MustCompile(`(?m)^ready$`)

// A server is a running weir serve.
type server struct {
	*process
	url  string // http://127.0.0.1:PORT
	data string // its --data
}

// serveWeir starts the real binary on a free port with its own data directory, and
// waits until it listens.
func serveWeir(t *testing.T, args ...string) *server {
	t.Helper()
	return serveIn(t, t.TempDir(), args...)
}

// serveIn is serveWeir with a data directory.
func serveIn(t *testing.T, data string, args ...string) *server {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, append([]string{"serve", "--listen", "127.0.0.1:0", "--data", data}, args...)...)
	engine := engineFor(top(t), args)
	cmd.Env = append(append(cleanEnv(), noNotice), engine...)
	cmd.Dir = t.TempDir()
	s := begin(t, cmd, data)
	if engine != nil {
		s.mustBeServedBy(t, testEngine)
	}
	return s
}

// begin starts a command that serves with a data directory, and waits until it listens.
func begin(t *testing.T, cmd *exec.Cmd, data string) *server {
	t.Helper()
	p, err := launch(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	m, err := p.stdout.await(listening)
	if err != nil {
		t.Fatalf("%v\nstandard error:\n%s", err, p.stderr)
	}
	return &server{process: p, url: m[1], data: data}
}

// quickExit prevents a program with the race detector from sleeping for a second
// when it ends.
const quickExit = "GORACE=atexit_sleep_ms=0"

// noNotice ends a server at once, in place of after two seconds.
const noNotice = "WEIR_DRAIN_NOTICE=off"

// anyAdmin gives each server an admin port of its own.
const anyAdmin = "WEIR_ADMIN=127.0.0.1:0"

// cleanEnv is this process's environment without Weir's variables.
func cleanEnv() []string {
	env := []string{quickExit, anyAdmin, "XDG_STATE_HOME=" + filepath.Join(binDir, "state")}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "WEIR_") && !strings.HasPrefix(v, "OTEL_") && !strings.HasPrefix(v, "XDG_") {
			env = append(env, v)
		}
	}
	return env
}

// end sends SIGTERM and waits for a drained server.
func (s *server) end(t *testing.T) {
	t.Helper()
	code, err := s.signal(syscall.SIGTERM)
	if err != nil {
		t.Fatal(err)
	}
	if code != 0 {
		t.Fatalf("weir serve ended with status %d after SIGTERM; it printed:\n%s", code, s.stderr)
	}
}

// run runs the real binary to its end, with env added to a clean environment. It
// returns the exit status, or -1 if the binary did not start.
func run(args, env []string, stdin io.Reader, stdout, stderr io.Writer) int {
	path, err := binary()
	if err != nil {
		fmt.Fprintln(stderr, err)
		return -1
	}
	cmd := exec.Command(path, args...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = append(cleanEnv(), env...), stdin, stdout, stderr
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		fmt.Fprintln(stderr, err)
		return -1
	}
	return cmd.ProcessState.ExitCode()
}

// weirCommand runs the real binary to its end and returns its output and status.
func weirCommand(ctx context.Context, t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, path, args...)
	var out, errs bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = cleanEnv(), &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}
