package redisstore_test

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
	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/redisstore"
)

// speaker starts a server that says a text at once, or for each line that it is sent, and returns its address.
func speaker(t *testing.T, atOnce, eachLine string) string {
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
			all.Go(func() {
				defer c.Close()
				io.WriteString(c, atOnce)
				for r := bufio.NewScanner(c); r.Scan(); {
					io.WriteString(c, eachLine)
				}
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		all.Wait()
	})
	return l.Addr().String()
}

// A server that is no Redis, or speaks otherwise than the URL says, is called what it is at the start, and is an error: to wait
// does not make it one. A server that only may be such a one is none.
func TestAServerThatIsNoRedisIsCalledWhatItIs(t *testing.T) {
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	encrypted, clear := redistest.StartTLS(t), redistest.Start(t)
	for _, c := range []struct {
		name, address string
		tls           *tls.Config
		lasts         bool
		want          string
	}{
		{"a web server", web.Listener.Addr().String(), nil, true, `is no Redis: it answered PING with "HTTP/1.1 400`},
		{"a web server, by TLS", web.Listener.Addr().String(), &tls.Config{}, true, "does not speak TLS: want redis://"},
		{"an SSH server", speaker(t, "SSH-2.0-OpenSSH_9.2\r\n", ""), nil, true, `is no Redis: it answered PING with "SSH-2.0-OpenSSH_9.2\r\n"`},
		{"a mail server", speaker(t, "220 mail.example.com ESMTP\r\n", "500 what?\r\n"), nil, true, "is no Redis: it answered PING with \"220 mail"},
		{"a memcached", speaker(t, "", "ERROR\r\n"), nil, true, "is no Redis"},
		{"who says yes to each line", speaker(t, "", "+OK\r\n"), nil, true, "is no Redis"},
		{"who says PONG for each line", speaker(t, "", "+PONG\r\n"), nil, true, "is no Redis"},
		{"who says numbers", speaker(t, ":1\r\n", ""), nil, true, "is no Redis"},
		{"who says nonsense", speaker(t, "\x00\x01\x02", ""), nil, true, `is no Redis: it answered PING with "\x00\x01\x02"`},
		{"a server with TLS", encrypted.Addr(), nil, false, "as a server with TLS does: is rediss:// meant?"},
		{"a server without TLS", clear.Addr(), &tls.Config{}, false, "as of a server without TLS: is redis:// meant?"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := redisstore.New(t.Context(), redisstore.Options{Addresses: []string{c.address}, TLS: c.tls})
			if err == nil {
				defer s.Close()
				err = s.State().Err
				if c.lasts {
					t.Errorf("it was waited for")
				}
			} else if !c.lasts || !errors.Is(err, redisstore.ErrServer) {
				t.Errorf("it is an error at the start: %v", err)
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("it is called %v, want %s", err, c.want)
			}
		})
	}
}

// Something else that takes the place of a Redis is called what it is in the log, harms nobody, and is left when Redis is back.
func TestGarbageOnTheWireIsCalledWhatItIs(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	var log lines
	n := newNode(t, open(t, redisstore.Options{Addresses: []string{proxy.Addr()}, Log: slog.New(slog.NewTextHandler(&log, nil))}), deadline, hourly(1e6))
	n.until("a", weir.Counted)
	proxy.Retarget(speaker(t, "HTTP/1.1 400 Bad Request\r\n\r\n", "+OK\r\n"))
	proxy.Cut()
	n.until("a", weir.CountedLocally)
	eventually(t, "the log says what it is", func() bool {
		n.decide("a")
		return log.with("is no Redis: it answered PING with") == 1
	})
	proxy.Retarget(server.Addr())
	proxy.Cut()
	n.recovered("a", 1)
	n.until("a", weir.Counted)
}

// A replica is called one, and counted in when it becomes a master.
func TestAReplicaIsCalledOne(t *testing.T) {
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
	eventually(t, "the state says why", func() bool {
		n.decide("a")
		err := n.Health().Err
		return err != nil && strings.Contains(err.Error(), "it is a read-only replica")
	})
}
