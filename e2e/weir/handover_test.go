package weir

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// A manager does for weir serve what systemd does: it holds the socket, and
// receives its notifications.
type manager struct {
	t        *testing.T
	socket   *net.TCPListener
	received *lines
	notify   string // the socket for notifications
}

func newManager(t *testing.T) *manager {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	// The name is short: the path of a socket has at most about a hundred bytes.
	dir, err := os.MkdirTemp("", "weir")
	if err != nil {
		t.Fatal(err)
	}
	m := &manager{t: t, socket: l.(*net.TCPListener), received: newLines(), notify: filepath.Join(dir, "notify")}
	socketIn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: m.notify, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	from, to := io.Pipe()
	var hearing sync.WaitGroup
	hearing.Go(func() { m.received.read(from) })
	hearing.Go(func() {
		defer to.Close()
		for b := make([]byte, 4096); ; {
			n, err := socketIn.Read(b)
			if err != nil {
				return
			}
			fmt.Fprintf(to, "%s\n", b[:n])
		}
	})
	t.Cleanup(func() {
		l.Close()
		socketIn.Close()
		hearing.Wait()
		os.RemoveAll(dir)
	})
	return m
}

// start runs weir serve with the socket and additional variables.
func (m *manager) start(data string, env []string, args ...string) *server {
	m.t.Helper()
	path, err := binary()
	if err != nil {
		m.t.Fatal(err)
	}
	socket, err := m.socket.File()
	if err != nil {
		m.t.Fatal(err)
	}
	defer socket.Close()
	args = append([]string{"-c", `export LISTEN_PID=$$; exec "$0" "$@"`, path, "serve", "--listen", "127.0.0.1:1", "--access-log=off", "--data", data}, args...)
	cmd := exec.Command("sh", args...)
	cmd.Env = append(cleanEnv(), "LISTEN_FDS=1", "LISTEN_FDNAMES=http", "NOTIFY_SOCKET="+m.notify)
	engine := engineFor(top(m.t), args)
	cmd.Env = append(append(cmd.Env, engine...), env...)
	cmd.ExtraFiles = []*os.File{socket} // descriptor 3
	p, err := launch(cmd)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(p.kill)
	line, err := p.stdout.await(listening)
	if err != nil {
		m.t.Fatalf("%v\nstandard error:\n%s", err, p.stderr)
	}
	s := &server{process: p, url: line[1], data: data}
	if engine != nil {
		s.mustBeServedBy(m.t, testEngine)
	}
	return s
}

func (m *manager) await(pattern string) {
	m.t.Helper()
	if _, err := m.received.await(regexp.MustCompile(pattern)); err != nil {
		m.t.Fatalf("%v; the manager received:\n%s", err, m.received)
	}
}

func TestTheServiceManagerIsNotified(t *testing.T) {
	m := newManager(t)
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	replaceFile(t, policy, onePolicy(1000))
	s := m.start(t.TempDir(), []string{"WATCHDOG_USEC=200000"}, "--policy", policy, "--upstream", nothingBehind(t))
	m.await(`(?m)^READY=1\nSTATUS=serving; policy .*policy.yaml \([0-9a-f]{8}, 1 limiter\); store memory, `)
	if want := "http://" + m.socket.Addr().String(); s.url != want || !strings.Contains(s.stdout.String(), "held by the service manager") {
		t.Errorf("it listens on %s, want %s; it prints\n%s", s.url, want, s.stdout)
	}
	response, err := http.Post(s.url+"/x", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _ = response.Body.Close(); response.StatusCode != http.StatusNoContent {
		t.Errorf("status %d", response.StatusCode)
	}
	m.await(`(?s)(WATCHDOG=1\n.*){3}`)

	replaceFile(t, policy, "limiters: []\n")
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	m.await(`(?s)RELOADING=1\nMONOTONIC_USEC=\d+\n.*STATUS=serving; policy .*a newer one was rejected \(1 problem\).*READY=1\n`)
	s.end(t)
	m.await(`(?m)^STOPPING=1\nSTATUS=draining`)
}

// One process ends and the next starts, repeatedly, while clients send requests:
// over HTTP/1.1 and HTTP/2, on kept and on new connections. No connection is
// refused, no request is lost, and the window admits exactly its limit.
func TestAHandOverLosesNoRequestAndNoCount(t *testing.T) {
	const limit = 3000
	upstream := nothingBehind(t)
	certificate := []string{filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")}
	if err := writeCertificate(certificate[0], certificate[1]); err != nil {
		t.Fatal(err)
	}
	for name, flags := range map[string][]string{"cleartext": nil, "TLS": {"--tls-cert", certificate[0], "--tls-key", certificate[1]}} {
		t.Run(name, func(t *testing.T) {
			m := newManager(t)
			data, policy := t.TempDir(), filepath.Join(t.TempDir(), "policy.yaml")
			replaceFile(t, policy, onePolicy(limit))
			flags := append([]string{"--policy", policy, "--upstream", upstream}, flags...)
			s := m.start(data, nil, flags...)
			url := s.url

			callers := &tallyman{limits: map[int]bool{limit: true}}
			var ended atomic.Bool
			var asking sync.WaitGroup
			for i := range 6 {
				asking.Go(func() {
					transport := &http.Transport{
						TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
						DisableKeepAlives: i >= 4,
						ForceAttemptHTTP2: i%2 == 0,
					}
					client := &http.Client{Transport: transport, Timeout: patience}
					defer client.CloseIdleConnections()
					pace := time.NewTicker(5 * time.Millisecond)
					defer pace.Stop()
					for !ended.Load() {
						callers.ask(client, url+"/x")
						<-pace.C
					}
				})
			}
			for range 3 {
				callers.await(t, callers.answered()+200)
				s.end(t)
				s = m.start(data, nil, flags...)
			}
			callers.await(t, limit+100)
			ended.Store(true)
			asking.Wait()
			callers.check(t)
			if n := len(callers.counts); n != limit || callers.refused == 0 {
				t.Errorf("%d requests were admitted, want %d; %d were refused", n, limit, callers.refused)
			}
			s.end(t)
		})
	}
}

// answered returns how many requests were answered correctly.
func (c *tallyman) answered() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.counts) + c.refused
}

// await returns once so many requests were answered, or one failed.
func (c *tallyman) await(t *testing.T, answers int) {
	t.Helper()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for late := time.After(patience); ; {
		c.mu.Lock()
		wrong := len(c.wrong)
		c.mu.Unlock()
		if wrong > 0 {
			c.check(t)
		}
		if c.answered() >= answers {
			return
		}
		select {
		case <-again.C:
		case <-late:
			t.Fatalf("%d requests were answered, want %d", c.answered(), answers)
		}
	}
}
