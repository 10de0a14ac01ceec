package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
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

	"github.com/weirlimit/weir/memstore"
)

// A manager does for weir serve what systemd does: it holds the socket, and hears how it goes.
type manager struct {
	t      *testing.T
	socket *net.TCPListener
	heard  *lines
	notify string // the socket on which it hears
}

func newManager(t *testing.T) *manager {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "weir") // a short name: the path of a socket has room for some hundred bytes
	if err != nil {
		t.Fatal(err)
	}
	m := &manager{t: t, socket: l.(*net.TCPListener), heard: newLines(), notify: filepath.Join(dir, "notify")}
	hears, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: m.notify, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	from, to := io.Pipe()
	var hearing sync.WaitGroup
	hearing.Go(func() { m.heard.read(from) })
	hearing.Go(func() {
		defer to.Close()
		for b := make([]byte, 4096); ; {
			n, err := hears.Read(b)
			if err != nil {
				return
			}
			fmt.Fprintf(to, "%s\n", b[:n])
		}
	})
	t.Cleanup(func() {
		l.Close()
		hears.Close()
		hearing.Wait()
		os.RemoveAll(dir)
	})
	return m
}

// start runs weir serve with the socket, and with more variables.
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
	said, err := p.stdout.await(listening)
	if err != nil {
		m.t.Fatalf("%v\nstandard error:\n%s", err, p.stderr)
	}
	s := &server{process: p, url: said[1], data: data}
	if engine != nil {
		s.mustBeServedBy(m.t, testEngine)
	}
	return s
}

func (m *manager) await(pattern string) {
	m.t.Helper()
	if _, err := m.heard.await(regexp.MustCompile(pattern)); err != nil {
		m.t.Fatalf("%v; the manager heard:\n%s", err, m.heard)
	}
}

func TestTheServiceManagerHearsHowItGoes(t *testing.T) {
	m := newManager(t)
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	replaceFile(t, policy, onePolicy(1000))
	s := m.start(t.TempDir(), []string{"WATCHDOG_USEC=200000"}, "--policy", policy, "--upstream", nothingBehind(t))
	m.await(`(?m)^READY=1\nSTATUS=serving; policy .*policy.yaml \([0-9a-f]{8}, 1 limiter\); store memory, `)
	if want := "http://" + m.socket.Addr().String(); s.url != want || !strings.Contains(s.stdout.String(), "held by the service manager") {
		t.Errorf("it listens on %s, want %s; it says\n%s", s.url, want, s.stdout)
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
	m.await(`(?s)RELOADING=1\nMONOTONIC_USEC=\d+\n.*STATUS=serving; policy .*a newer one is refused \(1 problem\).*READY=1\n`)
	s.end(t)
	m.await(`(?m)^STOPPING=1\nSTATUS=draining`)
}

// One process ends and the next begins, again and again, while clients go on: on kept connections, over HTTP/1.1 and HTTP/2, and on
// new ones. No connection is refused, no request is lost, and the window admits exactly its limit.
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

// answered returns how many requests were answered as they should be.
func (c *tallyman) answered() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.counts) + c.refused
}

// await returns once so many requests were answered, or one was not.
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

func TestASocketIsTakenForWhatItsNameSays(t *testing.T) {
	file := func(network string) *os.File {
		t.Helper()
		l, err := net.Listen(network, map[string]string{"tcp": "127.0.0.1:0", "unix": filepath.Join(t.TempDir(), "s")}[network])
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		f, err := l.(interface{ File() (*os.File, error) }).File()
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	for _, test := range []struct {
		names string
		admin bool
		err   string // empty: taken
	}{
		{"http", false, ""},
		{"weir.socket", false, ""},
		{"http admin", true, ""},
		{"admin http", true, ""},
		{"admin", false, `none is named "http"`},
		{"http http", false, `two sockets are named "http"`},
		{"http metrics", false, `of 2 sockets one is named "metrics": want names http and admin`},
		{"unix:http", false, "want TCP"},
	} {
		names := strings.Fields(test.names)
		var files []*os.File
		for i, name := range names {
			network := "tcp"
			if unix, ok := strings.CutPrefix(name, "unix:"); ok {
				names[i], network = unix, "unix"
			}
			files = append(files, file(network))
		}
		s, err := heldSockets(names, files)
		switch {
		case test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)):
			t.Errorf("%s: %v, want %q", test.names, err, test.err)
		case test.err == "" && (err != nil || s.public == nil || (s.admin != nil) != test.admin || !s.held):
			t.Errorf("%s: %+v, %v", test.names, s, err)
		}
		if s != nil {
			s.close()
		}
	}
}

// The next process waits for the counts that the last one still holds, and no longer than it is to run itself.
func TestTheNextProcessWaitsForTheCounts(t *testing.T) {
	o := memstore.Options{Memory: memstore.MinMemory, File: filepath.Join(t.TempDir(), "counters"), Log: slog.New(slog.DiscardHandler)}
	last, err := memstore.New(o)
	if err != nil {
		t.Fatal(err)
	}
	var held *memstore.InUseError
	if _, err := openCounts(o, nil, o.Log); !errors.As(err, &held) {
		t.Errorf("without a hand-over: %v", err)
	}
	giveUp := make(chan struct{})
	close(giveUp)
	if _, err := openCounts(o, giveUp, o.Log); !errors.Is(err, errToldToEnd) {
		t.Errorf("to be ended: %v", err)
	}
	said := newLines()
	from, to := io.Pipe()
	go said.read(from)
	defer to.Close()
	go func() {
		if _, err := said.await(regexp.MustCompile("waiting for the process before")); err == nil {
			_ = last.Close()
		}
	}()
	next, err := openCounts(o, make(chan struct{}), slog.New(slog.NewTextHandler(to, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Close(); err != nil {
		t.Error(err)
	}
}

// The watchdog is fed by a server that accepts, and by none that does not.
func TestThePulseIsThatOfTheAcceptLoop(t *testing.T) {
	f := defaultServeFlags()
	f.data, f.accessLog = t.TempDir(), false
	policy, err := readPolicy(nil, "")
	if err != nil {
		t.Fatal(err)
	}
	e, err := assemble(t.Context(), f, policy.Policy, slog.New(slog.DiscardHandler), io.Discard, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &pulse{edge: e, at: l.Addr()}
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := p.alive(soon); err == nil {
		t.Error("nobody accepts, and it is taken for alive")
	}
	running, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- e.gateway.Serve(running, l) }()
	for range 3 {
		if err := p.alive(t.Context()); err != nil {
			t.Error(err)
		}
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if err := p.alive(t.Context()); err != nil {
		t.Errorf("drained: %v", err)
	}
}
