// Package nginxtest starts a real nginx for a test, Debian's, on a socket of the loopback that
// already listens. It ends with the test, and with the test binary. Only tests import it.
package nginxtest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/weirlimit/weir/e2e/child"
)

// A Server is one nginx, a master with one worker. It is safe for concurrent use.
type Server struct {
	Addr string // host:port where it listens

	process *child.Process
	dir     string
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
	s := &Server{Addr: listener.Addr().String(), dir: t.TempDir()}
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
	cmd := exec.Command(binary(), "-p", s.dir, "-c", conf, "-e", "stderr")
	cmd.ExtraFiles = []*os.File{socket} // descriptor 3
	cmd.Env = append(os.Environ(), "NGINX=3;")
	if s.process, err = child.Start(cmd, filepath.Join(s.dir, "said"), syscall.SIGTERM); err != nil {
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

// Log returns the end of nginx's output: its error log, unless the test's part redirects that.
func (s *Server) Log() string { return s.process.Output() }

// await returns when nginx has read its configuration and written its pid. Its socket already
// listened before.
func (s *Server) await() error {
	err := s.process.Await("nginx writes its pid", func() bool {
		_, err := os.Stat(filepath.Join(s.dir, "nginx.pid"))
		return err == nil
	})
	if err != nil {
		return fmt.Errorf("start nginx: %w", err)
	}
	return nil
}

// Stop terminates nginx, and returns when it has ended and its logs are complete. It is no error if
// nginx has already ended, unless it failed, or if it had to be killed.
func (s *Server) Stop() error {
	if !s.process.Stop(child.Patience) {
		return fmt.Errorf("stop nginx: it does not end within %v, and said:\n%s", child.Patience, s.Log())
	}
	if state := s.process.State(); !state.Success() {
		return fmt.Errorf("stop nginx: %v:\n%s", state, s.Log())
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
