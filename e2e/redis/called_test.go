package redis_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/e2e/redistest"
	"github.com/weirlimit/weir/redisstore"
)

// speaker starts a server that sends one text on connect, and another text for each
// line it receives. It returns the server's address.
func speaker(t *testing.T, atOnce, eachLine string) string {
	t.Helper()
	return accepting(t, func(c net.Conn, _ *sync.WaitGroup) {
		defer c.Close()
		io.WriteString(c, atOnce)
		for r := bufio.NewScanner(c); r.Scan(); {
			io.WriteString(c, eachLine)
		}
	})
}

// accepting starts a server that runs serve in a goroutine for each connection, and
// returns its address. At the end of the test it waits for these goroutines, and
// for those that serve adds to all.
func accepting(t *testing.T, serve func(c net.Conn, all *sync.WaitGroup)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { serve(c, &all) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		all.Wait()
	})
	return l.Addr().String()
}

// If a server is not Redis, or its protocol does not match the URL, New returns an
// error, since waiting does not help. If that is only likely, New does not fail.
func TestNewRejectsAServerThatIsNotRedis(t *testing.T) {
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	encrypted, clear := redistest.StartTLS(t), redistest.Start(t)
	for _, c := range []struct {
		name, address string
		tls           *tls.Config
		lasts         bool
		want          string
	}{
		{"a web server", web.Listener.Addr().String(), nil, true, `is not a Redis: it answered PING with "HTTP/1.1 400`},
		{"a web server, by TLS", web.Listener.Addr().String(), &tls.Config{}, true, "does not use TLS: expected redis://"},
		{"an SSH server", speaker(t, "SSH-2.0-OpenSSH_9.2\r\n", ""), nil, true, `is not a Redis: it answered PING with "SSH-2.0-OpenSSH_9.2\r\n"`},
		{"a mail server", speaker(t, "220 mail.example.com ESMTP\r\n", "500 what?\r\n"), nil, true, "is not a Redis: it answered PING with \"220 mail"},
		{"a memcached", speaker(t, "", "ERROR\r\n"), nil, true, "is not a Redis"},
		{"a server that answers OK to each line", speaker(t, "", "+OK\r\n"), nil, true, "is not a Redis"},
		{"a server that answers PONG to each line", speaker(t, "", "+PONG\r\n"), nil, true, "is not a Redis"},
		{"a server that answers PONG to each line, to some of them later", latePongs(t), nil, true, `is not a Redis: it answered ECHO with "+PONG\r\n`},
		{"a server that sends a number", speaker(t, ":1\r\n", ""), nil, true, "is not a Redis"},
		{"a server that sends garbage", speaker(t, "\x00\x01\x02", ""), nil, true, `is not a Redis: it answered PING with "\x00\x01\x02"`},
		{"a server with TLS", encrypted.Addr(), nil, false, "as a server with TLS does: should the URL begin with rediss://?"},
		{"a server without TLS", clear.Addr(), &tls.Config{}, false, "as from a server without TLS: should the URL begin with redis://?"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := redisstore.New(t.Context(), redisstore.Options{Addresses: []string{c.address}, TLS: c.tls})
			if err == nil {
				defer s.Close()
				err = s.State().Err
				if c.lasts {
					t.Errorf("New waited")
				}
			} else if !c.lasts || !errors.Is(err, redisstore.ErrServer) {
				t.Errorf("it is an error at the start: %v", err)
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error is %v, want %s", err, c.want)
			}
		})
	}
}

// latePongs starts a server that answers each line, the second and the third of them
// only when more has come.
func latePongs(t *testing.T) (address string) {
	return accepting(t, func(c net.Conn, _ *sync.WaitGroup) {
		defer c.Close()
		late, line := "", 0
		for s := bufio.NewScanner(c); s.Scan(); {
			line++
			if late += "+PONG\r\n"; line == 2 || line == 3 {
				continue
			}
			io.WriteString(c, late)
			late = ""
		}
	})
}

// If another server takes Redis' place, the log names it and callers are still
// served. The store recovers once Redis is back.
func TestGarbageOnTheWireIsReported(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	var log lines
	n := newNode(t, open(t, redisstore.Options{Addresses: []string{proxy.Addr()}, Log: slog.New(slog.NewTextHandler(&log, nil))}), deadline, hourly(1e6))
	n.until("a", weir.Counted)
	proxy.Retarget(speaker(t, "HTTP/1.1 400 Bad Request\r\n\r\n", "+OK\r\n"))
	proxy.Cut()
	n.until("a", weir.CountedLocally)
	eventually(t, "the log names it", func() bool {
		n.decide("a")
		return log.with("is not a Redis: it answered PING with") == 1
	})
	proxy.Retarget(server.Addr())
	proxy.Cut()
	n.recovered("a", 1)
	n.until("a", weir.Counted)
}

// A replica is reported as a replica, and used once it is a master.
func TestAReplicaIsReportedAndUsedOncePromoted(t *testing.T) {
	master := redistest.Start(t)
	_, port, _ := strings.Cut(master.Addr(), ":")
	replica := redistest.Start(t, "--replicaof", "127.0.0.1", port)
	s := open(t, at(replica))
	if st := s.State(); st.Ready || st.Err == nil || !strings.Contains(st.Err.Error(), "it is a read-only replica, and only its master counts") {
		t.Errorf("the state is %+v", st)
	}
	replica.Do(t, "REPLICAOF", "NO", "ONE")
	n := newNode(t, s, deadline, hourly(10))
	n.until("a", weir.Counted)

	replica.Do(t, "REPLICAOF", "127.0.0.1", port)
	n.until("a", weir.CountedLocally)
	eventually(t, "the state has the reason", func() bool {
		n.decide("a")
		err := n.over.Health().Err
		return err != nil && strings.Contains(err.Error(), "it is a read-only replica")
	})
}

// If a server loses its counters, each process logs that once with the reason, and
// counts it. If a server keeps them, no line is logged.
func TestLostCountersAreReported(t *testing.T) {
	const flushed, restarted = "its keys were deleted, as by FLUSHALL, or evicted", "it was started without its data, or another server has taken its place"
	cluster := func(t *testing.T) (*redistest.Server, redisstore.Options) {
		c := redistest.StartCluster(t, 3, 0)
		return c.Nodes[1], redisstore.Options{Addresses: c.Addrs()}
	}
	server := func(args ...string) func(t *testing.T) (*redistest.Server, redisstore.Options) {
		return func(t *testing.T) (*redistest.Server, redisstore.Options) {
			s := redistest.Start(t, args...)
			return s, at(s)
		}
	}
	for _, c := range []struct {
		name   string
		start  func(t *testing.T) (*redistest.Server, redisstore.Options)
		lose   func(t *testing.T, s *redistest.Server)
		reason string // empty if nothing is lost
	}{
		{"FLUSHALL", server(), func(t *testing.T, s *redistest.Server) { s.Do(t, "FLUSHALL") }, flushed},
		{"a restart without its data", server(), func(t *testing.T, s *redistest.Server) { s.Restart(t) }, restarted},
		{"a restart with its data", server("--appendonly", "yes", "--appendfsync", "always"), func(t *testing.T, s *redistest.Server) { s.Restart(t) }, ""},
		{"a restart of one machine of a cluster without its data", cluster, func(t *testing.T, s *redistest.Server) { s.Restart(t) }, restarted},
		{"FLUSHALL of one machine of a cluster", cluster, func(t *testing.T, s *redistest.Server) { s.Do(t, "FLUSHALL") }, flushed},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, o := c.start(t)
			var logs [2]lines
			var stores [2]*redisstore.Store
			for i := range stores {
				o.Log = slog.New(slog.NewTextHandler(&logs[i], nil))
				stores[i] = open(t, o)
			}
			c.lose(t, s)
			const line = "the store lost its counters"
			if c.reason == "" {
				for _, st := range stores {
					asked := func() bool { return st.State().Ready }
					eventually(t, "it is checked again", asked)
				}
				o.Log = nil
				open(t, o) // takes longer than a check
			}
			for i := range stores {
				if c.reason != "" {
					eventually(t, "it is logged", func() bool { return logs[i].with(line) > 0 })
				}
				want := min(1, len(c.reason))
				if logs[i].with(line) != want || stores[i].Stats().Emptied != int64(want) || want > 0 && logs[i].with(c.reason) != 1 {
					t.Errorf("%d lines report it, %d with the reason, and it is counted %d times", logs[i].with(line), logs[i].with(c.reason), stores[i].Stats().Emptied)
				}
			}
		})
	}
}
