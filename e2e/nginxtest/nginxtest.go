// Package nginxtest starts a real nginx for a test, Debian's, on a socket of the loopback that listens already. It ends with the test,
// and with the test binary. Only tests import it.
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

// base is what every nginx has; the test's own part of http comes last. It has the places user, directory and the test's part.
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

// Start starts nginx with a test's part of the http block, in which LISTEN stands for the address that one of its servers listens
// on, in a directory of its own, and returns when it has read that. It logs errors from warnings on, and requests to a file, unless
// the part says otherwise. When the test ends nginx is stopped; the test fails where it does not stop well, and is told what
// nginx said where it failed.
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
		user = "user root;" // others may not look into a test's directory
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

// binary is where nginx is.
func binary() string {
	if path, err := exec.LookPath("nginx"); err == nil {
		return path
	}
	return "/usr/sbin/nginx" // sbin is not on everybody's PATH
}

// run starts the process, with its words in a file.
func (s *Server) run() error {
	out, err := os.Create(s.log())
	if err != nil {
		return err
	}
	defer out.Close()
	s.cmd.Stdout, s.cmd.Stderr = out, out
	started := make(chan error)
	go func() {
		// A child is told of the end of the thread that started it, not of the process: so this goroutine keeps its thread until
		// the child has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(s.done)
		err := s.cmd.Start()
		started <- err
		if err == nil {
			_ = s.cmd.Wait() // how it ended is in ProcessState
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("%w (scripts/deps installs what tests need)", err)
	}
	return nil
}

func (s *Server) log() string { return filepath.Join(s.dir, "said") }

// Log returns the last of what nginx has said: its error log, as long as the test's part does not send that elsewhere.
func (s *Server) Log() string {
	const most = 16 << 10
	text, err := os.ReadFile(s.log())
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-most):])
}

// patience is how long anything may take before it is taken to have failed; nothing here takes a tenth of it on an idle machine.
const patience = 30 * time.Second

// await returns when nginx has read its configuration: it writes its number down then. Its socket listened before.
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

// Stop ends nginx, and returns when it has ended and its logs are whole. One that has ended already is no error; one that ends
// otherwise than well, or that had to be killed, is.
func (s *Server) Stop() error {
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // to its master, which ends its worker; it may have ended already
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
