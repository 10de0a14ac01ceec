// Package nginxtest starts a real nginx for a test, Debian's, on a socket of the loopback that
// already listens. It ends with the test, and with the test binary. Only tests import it.
package nginxtest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A Server is one nginx, a master with one worker. It is safe for concurrent use.
type Server struct {
	Addr string // host:port where it listens

	cmd  *exec.Cmd
	dir  string
	done chan struct{} // closed when it has ended
}

// base is the common part of the configuration, with placeholders for the user, the directory and
// the test's part of http.
const base = `%[1]s
daemon off;
worker_processes 1;
pid %[2]s/nginx.pid;
error_log stderr warn;
events { worker_connections 512; }
http {
	access_log %[2]s/access.log;
	client_body_temp_path %[2]s/body;
	proxy_temp_path %[2]s/proxy;
	fastcgi_temp_path %[2]s/fastcgi;
	uwsgi_temp_path %[2]s/uwsgi;
	scgi_temp_path %[2]s/scgi;
	keepalive_requests 1000000;
	%[3]s
}
`

// Start starts nginx in a directory of its own with a test's part of the http block, in which
// LISTEN means the address of one of its servers, and returns when nginx has read it. nginx logs
// warnings and errors, and requests to a file, unless the part changes that. At the end of the test
// nginx is stopped. The test fails if nginx does not exit cleanly, and then shows nginx's log.
func Start(t testing.TB, part string) *Server {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	s := &Server{Addr: listener.Addr().String(), dir: t.TempDir(), done: make(chan struct{})}
	socket, err := listener.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	user := ""
	if os.Getuid() == 0 {
		user = "user root;" // other users cannot read a test's directory
	}
	conf := filepath.Join(s.dir, "nginx.conf")
	text := fmt.Sprintf(base, user, s.dir, strings.ReplaceAll(part, "LISTEN", s.Addr))
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s.cmd = exec.Command(binary(), "-p", s.dir, "-c", conf, "-e", "stderr")
	s.cmd.ExtraFiles = []*os.File{socket} // descriptor 3
	s.cmd.Env = append(os.Environ(), "NGINX=3;")
	s.cmd.SysProcAttr = endsWithUs()
	if err := s.run(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.end(t) })
	if err := s.await(); err != nil {
		t.Fatal(err)
	}
	return s
}

// binary returns the path of nginx.
func binary() string {
	if path, err := exec.LookPath("nginx"); err == nil {
		return path
	}
	return "/usr/sbin/nginx" // sbin is not on every PATH
}

// run starts the process with its output in a file.
func (s *Server) run() error {
	out, err := os.Create(s.log())
	if err != nil {
		return err
	}
	defer out.Close()
	s.cmd.Stdout, s.cmd.Stderr = out, out
	started := make(chan error)
	go func() {
		// The kernel signals a child when the thread that started it ends, not the process, so this
		// goroutine keeps its thread until the child has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(s.done)
		err := s.cmd.Start()
		started <- err
		if err == nil {
			_ = s.cmd.Wait() // ProcessState shows how it ended
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("%w (scripts/deps installs what tests need)", err)
	}
	return nil
}

func (s *Server) log() string { return filepath.Join(s.dir, "said") }

// Log returns the end of nginx's output: its error log, unless the test's part redirects that.
func (s *Server) Log() string {
	const maxBytes = 16 << 10
	text, err := os.ReadFile(s.log())
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-maxBytes):])
}

// patience is the time-out for everything; on an idle machine nothing takes a tenth of it.
const patience = 30 * time.Second

// await returns when nginx has read its configuration and written its pid. Its socket already
// listened before.
func (s *Server) await() error {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat(filepath.Join(s.dir, "nginx.pid")); err == nil {
			return nil
		}
		select {
		case <-s.done:
			return fmt.Errorf("start nginx: %v:\n%s", s.cmd.ProcessState, s.Log())
		case <-deadline.C:
			return fmt.Errorf("start nginx: it is not there after %v, and said:\n%s", patience, s.Log())
		case <-tick.C:
		}
	}
}

// Stop terminates nginx, and returns when it has ended and its logs are complete. It is no error if
// nginx has already ended, unless it failed, or if it had to be killed.
func (s *Server) Stop() error {
	// to the master, which ends its worker; it may have ended already
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.done:
	case <-time.After(patience):
		_ = s.cmd.Process.Kill()
		<-s.done
		return fmt.Errorf("stop nginx: it does not end within %v, and said:\n%s", patience, s.Log())
	}
	if !s.cmd.ProcessState.Success() {
		return fmt.Errorf("stop nginx: %v:\n%s", s.cmd.ProcessState, s.Log())
	}
	return nil
}

func (s *Server) end(t testing.TB) {
	t.Helper()
	if err := s.Stop(); err != nil {
		t.Error(err)
		return
	}
	switch said := s.Log(); {
	case strings.Contains(said, "[emerg]"):
		t.Errorf("nginx said:\n%s", said)
	case t.Failed():
		t.Logf("nginx said:\n%s", said)
	}
}
