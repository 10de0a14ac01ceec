// Package apptest starts application servers of common backends, Debian's gunicorn, daphne, PHP,
// lighttpd and Python, on the loopback, so that tests see how they read a request. Only tests
// import it.
package apptest

import (
	"bufio"
	"embed"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"testing"

	"github.com/weirlimit/weir/e2e/child"
)

// apps are the applications of the servers. All do the same: they record each request as they route
// it, and answer with a line "METHOD PATH" and one line "NAME=value" for each field, by its CGI
// name.
//
//go:embed apps
var apps embed.FS

// A Server is one application server with its application. It is safe for concurrent use.
type Server struct {
	Addr string // host:port where it listens

	name    string
	cmd     *exec.Cmd
	process *child.Process
	dir     string

	once    sync.Once
	stopped error // the result of Stop
}

// Gunicorn starts gunicorn, with one worker. It routes by PATH_INFO.
func Gunicorn(t testing.TB) *Server {
	t.Helper()
	s := prepare(t, "gunicorn")
	s.cmd = exec.Command("gunicorn", "--bind", "fd://3", "--worker-tmp-dir", s.dir, "--keep-alive", "30", "--threads", "4", "wsgi:application")
	s.startListening(t)
	return s
}

// Daphne starts daphne. It routes by the path below root_path.
func Daphne(t testing.TB) *Server {
	t.Helper()
	s := prepare(t, "daphne")
	s.cmd = exec.Command("daphne", "--fd", "3", "asgi:application")
	s.startListening(t)
	return s
}

// Python starts the server of Python's standard library. It speaks HTTP/1.1, keeps connections, and
// reads only the body of a POST.
func Python(t testing.TB) *Server {
	t.Helper()
	s := prepare(t, "python3")
	s.cmd = exec.Command("/usr/bin/python3", "plain.py")
	s.startListening(t)
	return s
}

// lighttpdConf has placeholders for the directory and the port.
const lighttpdConf = `
server.document-root = "%[1]s"
server.port = %[2]d
server.bind = "127.0.0.1"
server.systemd-socket-activation = "enable"
server.errorlog = "/dev/stderr"
server.modules = ("mod_rewrite", "mod_cgi")
url.rewrite-once = ("^/.*$" => "/script.py")
cgi.assign = (".py" => "")
`

// Lighttpd starts lighttpd, which runs a CGI script for each request. It routes by X-Rewrite-Url
// and X-HTTP-Method-Override, if present.
func Lighttpd(t testing.TB) *Server {
	t.Helper()
	s := prepare(t, "lighttpd")
	// It accepts a listening socket only with its own process id in LISTEN_PID, as systemd sets it.
	s.cmd = exec.Command("sh", "-c", `LISTEN_PID=$$ LISTEN_FDS=1 exec lighttpd -D -f lighttpd.conf`)
	s.startListening(t)
	return s
}

// PHP starts PHP's built-in server. It routes by X-Rewrite-Url and X-HTTP-Method-Override, if
// present.
func PHP(t testing.TB) *Server {
	t.Helper()
	s := prepare(t, "php")
	s.cmd = exec.Command("php", "-S", "127.0.0.1:0", "index.php")
	s.start(t)
	listens := regexp.MustCompile(`\(http://(127\.0\.0\.1:[0-9]+)\) started`)
	err := s.process.Await("it reports where it listens", func() bool {
		m := listens.FindStringSubmatch(s.Log())
		if m != nil {
			s.Addr = m[1]
		}
		return m != nil
	})
	if err != nil {
		t.Fatalf("start %s: %v", s.name, err)
	}
	return s
}

// Seen returns each request to the application, as it routed it: "METHOD PATH", in order.
func (s *Server) Seen(t testing.TB) (requests []string) {
	t.Helper()
	file, err := os.Open(s.asked())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		requests = append(requests, lines.Text())
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return requests
}

func (s *Server) asked() string { return filepath.Join(s.dir, "asked") }

// Log returns the end of the server's output.
func (s *Server) Log() string { return s.process.Output() }

// prepare makes a server's directory with all applications.
func prepare(t testing.TB, name string) *Server {
	t.Helper()
	s := &Server{name: name, dir: t.TempDir()}
	files, err := apps.ReadDir("apps")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := apps.ReadFile("apps/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(s.dir, f.Name()), text, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// startListening starts the server with a socket that already listens as descriptor 3, so that
// there is nothing to wait for.
func (s *Server) startListening(t testing.TB) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	s.Addr = listener.Addr().String()
	socket, err := listener.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	s.cmd.ExtraFiles = []*os.File{socket}
	conf := fmt.Sprintf(lighttpdConf, s.dir, listener.Addr().(*net.TCPAddr).Port)
	if err := os.WriteFile(filepath.Join(s.dir, "lighttpd.conf"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	s.start(t)
}

// start starts the server in its directory. It is stopped when the test ends; if the test failed,
// its output is shown.
func (s *Server) start(t testing.TB) {
	t.Helper()
	s.cmd.Dir = s.dir
	s.cmd.Env = append(os.Environ(), "PYTHONPATH="+s.dir, "PYTHONDONTWRITEBYTECODE=1", "PATH="+os.Getenv("PATH")+":/usr/sbin:/usr/bin")
	var err error
	if s.process, err = child.Start(s.cmd, filepath.Join(s.dir, "said"), syscall.SIGTERM); err != nil {
		t.Fatalf("start %s: %v", s.name, err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("%s said:\n%s", s.name, s.Log())
		}
	})
}

// Stop terminates the server, and returns when it has ended. It is an error if the server had
// already ended, or had to be killed. A second call does nothing.
func (s *Server) Stop() error {
	s.once.Do(func() { s.stopped = s.stop() })
	return s.stopped
}

func (s *Server) stop() error {
	select {
	case <-s.process.Done():
		return fmt.Errorf("stop %s: it had ended already, %v:\n%s", s.name, s.process.State(), s.Log())
	default:
	}
	if !s.process.Stop(child.Patience) {
		return fmt.Errorf("stop %s: it does not end within %v, and said:\n%s", s.name, child.Patience, s.Log())
	}
	return nil
}
