// Package redistest starts real Redis servers for tests: a single server, one with TLS, a cluster,
// a set of Sentinels, a server with a clock that the test moves, and a proxy that simulates network
// faults. All of them end with the test, and with the test binary. Only tests import it.
package redistest

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirlimit/weir/e2e/child"
)

// A Server is one redis-server on the loopback. It is safe for concurrent use.
type Server struct {
	// TLS is the client's configuration; nil means no TLS. CAFile is the authority's certificate in
	// PEM, or "".
	TLS    *tls.Config
	CAFile string
	// Clock is the server's, if it is in a Network; otherwise nil.
	Clock *Clock

	port     int
	dir      string
	password string
	args     []string // the caller's
	env      []string // added to the test's
	sentinel string   // the lines of a Sentinel's file, which it rewrites; empty for a server
	network  *Network // nil: it is reached at 127.0.0.1
	host     string   // in the network

	mu      sync.Mutex
	process *process
}

// Start starts a server that keeps nothing on disk, unless args, which are redis-server's, change
// that. It returns when the server answers. If args include --requirepass, Do and URL use that
// password.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	s := newServer(t, args)
	s.start(t)
	return s
}

func newServer(t testing.TB, args []string) *Server {
	return &Server{dir: t.TempDir(), args: args, password: passwordIn(args)}
}

func passwordIn(args []string) string {
	if i := slices.Index(args, "--requirepass"); i >= 0 && i+1 < len(args) {
		return args[i+1]
	}
	return ""
}

// start starts the server on a free port. If another process takes the port first, it tries
// another.
func (s *Server) start(t testing.TB) {
	t.Helper()
	t.Cleanup(func() {
		s.Kill()
		if t.Failed() {
			t.Logf("redis-server %s:\n%s", s.Addr(), s.Log())
		}
	})
	for range 10 {
		s.port = sparePort(t)
		if s.sentinel != "" {
			text := fmt.Sprintf("port %d\nbind 127.0.0.1\ndir %s\n%s", s.port, s.dir, s.sentinel)
			if s.network != nil {
				text += fmt.Sprintf("bind-source-addr %[1]s\nsentinel announce-ip %[1]s\nsentinel announce-port %d\n", s.host, s.port)
			}
			if err := os.WriteFile(s.sentinelFile(), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err := s.run()
		if err == nil && s.network != nil {
			err = s.network.connect(t, s)
		}
		if err == nil {
			return
		}
		if !strings.Contains(s.Log(), "Address already in use") {
			t.Fatalf("start redis-server: %v\n%s", err, s.Log())
		}
	}
	t.Fatal("start redis-server: every port was taken")
}

func (s *Server) sentinelFile() string { return filepath.Join(s.dir, "sentinel.conf") }

// run starts the process and waits until it answers.
func (s *Server) run() error {
	if s.sentinel != "" {
		return s.exec([]string{s.sentinelFile(), "--sentinel"})
	}
	listen := []string{"--port", strconv.Itoa(s.port)}
	if s.TLS != nil {
		listen = []string{"--port", "0", "--tls-port", strconv.Itoa(s.port)}
	}
	args := append(listen, "--bind", "127.0.0.1", "--dir", s.dir, "--save", "", "--appendonly", "no")
	if s.network != nil {
		args = append(args, "--bind-source-addr", s.host, "--replica-announce-ip", s.host, "--cluster-announce-ip", s.host)
	}
	return s.exec(append(args, s.args...))
}

func (s *Server) exec(args []string) error {
	p, err := startProcess(filepath.Join(s.dir, "log"), s.env, "redis-server", args...)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.process = p
	s.mu.Unlock()
	return eventually(func() error {
		select {
		case <-p.Done():
			return final{errors.New("it ended at once")}
		default:
			return s.answers(p)
		}
	})
}

// answers returns nil if the server is ready and is this process: the port may be another
// process's.
func (s *Server) answers(p *process) error {
	if err := s.Try("PING").Error(); err != nil {
		return err
	}
	info, err := s.Try("INFO", "server").ToString()
	if err != nil {
		return err
	}
	if pid := field(info, "process_id"); pid != strconv.Itoa(p.Pid()) {
		return fmt.Errorf("process %s answers, not %d", pid, p.Pid())
	}
	return nil
}

// Addr returns the server's HOST:PORT.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Host returns the server's address in its Network.
func (s *Server) Host() string { return s.host }

// announced returns the HOST and PORT at which other servers and clients reach it: those of its
// network, if it is in one.
func (s *Server) announced() (host, port string) {
	return cmp.Or(s.host, "127.0.0.1"), strconv.Itoa(s.port)
}

// URL returns redis://HOST:PORT, or rediss:// with TLS, with the password if there is one.
func (s *Server) URL() string {
	u := url.URL{Scheme: "redis", Host: s.Addr()}
	if s.TLS != nil {
		u.Scheme = "rediss"
	}
	if s.password != "" {
		u.User = url.UserPassword("", s.password)
	}
	return u.String()
}

// Do sends one command over a new connection. An error fails the test; a null is no error.
func (s *Server) Do(t testing.TB, args ...string) rueidis.RedisMessage {
	t.Helper()
	m, err := s.Try(args...).ToMessage()
	if err != nil && !rueidis.IsRedisNil(err) {
		t.Fatalf("%s: %s: %v", s.Addr(), strings.Join(args, " "), err)
	}
	return m
}

// Try is Do for commands whose error is a result too. It gives up after 10 seconds.
func (s *Server) Try(args ...string) rueidis.RedisResult {
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{s.Addr()}, Password: s.password, TLSConfig: s.TLS,
		Dialer:            net.Dialer{Timeout: time.Second},
		ForceSingleClient: true, PipelineMultiplex: -1, DisableCache: true, DisableRetry: true, AlwaysRESP2: true,
	})
	if err != nil {
		return rueidis.NewErrorResult(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return client.Do(ctx, client.B().Arbitrary(args...).Build())
}

// Info returns one section of INFO as a map.
func (s *Server) Info(t testing.TB, section string) map[string]string {
	t.Helper()
	m := s.Do(t, "INFO", section)
	text, err := m.ToString()
	if err != nil {
		t.Fatal(err)
	}
	return fields(text)
}

// Commands returns how many scripts the server was asked to run since it started: EVAL, EVALSHA and
// FCALL, including errors.
func (s *Server) Commands(t testing.TB) int64 {
	t.Helper()
	return s.Calls(t, "eval", "eval_ro", "evalsha", "evalsha_ro", "fcall", "fcall_ro")
}

// Calls returns how often the server was asked to run commands since it started, including errors.
func (s *Server) Calls(t testing.TB, names ...string) int64 {
	t.Helper()
	stats := s.Info(t, "commandstats")
	total := int64(0)
	for _, name := range names {
		for part := range strings.SplitSeq(stats["cmdstat_"+name], ",") {
			for _, counter := range []string{"calls=", "rejected_calls="} {
				if value, ok := strings.CutPrefix(part, counter); ok {
					n, err := strconv.ParseInt(value, 10, 64)
					if err != nil {
						t.Fatalf("cmdstat_%s: %v", name, err)
					}
					total += n
				}
			}
		}
	}
	return total
}

// CPU returns the processor time that the server has used since it started.
func (s *Server) CPU(t testing.TB) time.Duration {
	t.Helper()
	info := s.Info(t, "cpu")
	total := time.Duration(0)
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(info[name], 64)
		if err != nil {
			t.Fatalf("INFO cpu: %s: %v", name, err)
		}
		total += time.Duration(seconds * float64(time.Second))
	}
	return total
}

// Running reports whether the process has not ended. A paused process runs.
func (s *Server) Running() bool {
	select {
	case <-s.current().Done():
		return false
	default:
		return true
	}
}

// Pid returns the id of the process, or of the last one if it has ended.
func (s *Server) Pid() int { return s.current().Pid() }

// Kill kills the server, like a crash, and returns when it has ended.
func (s *Server) Kill() {
	if p := s.current(); p != nil {
		p.Kill()
	}
}

// Stop terminates the server, and returns when it has ended. After 10 seconds it kills it.
func (s *Server) Stop() { s.current().stop() }

// Pause suspends the server: the system still accepts its connections and input, but nothing
// answers.
func (s *Server) Pause(t testing.TB) {
	t.Helper()
	if err := s.current().pause(); err != nil {
		t.Fatalf("pause redis-server: %v", err)
	}
}

// Resume ends a Pause. Commands that were sent meanwhile run now.
func (s *Server) Resume(t testing.TB) {
	t.Helper()
	if err := s.current().resume(); err != nil {
		t.Fatalf("resume redis-server: %v", err)
	}
}

// Restart starts the server again at the same address and in the same directory. It stops a running
// server first.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Stop()
	if err := s.run(); err != nil {
		t.Fatalf("restart redis-server: %v\n%s", err, s.Log())
	}
}

// Log returns the server's log since its last start.
func (s *Server) Log() string { return child.Tail(filepath.Join(s.dir, "log")) }

func (s *Server) current() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}

// fields parses the lines NAME:VALUE of an INFO.
func fields(info string) map[string]string {
	all := make(map[string]string)
	for lines := bufio.NewScanner(strings.NewReader(info)); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok {
			all[name] = value
		}
	}
	return all
}

func field(info, name string) string { return fields(info)[name] }
