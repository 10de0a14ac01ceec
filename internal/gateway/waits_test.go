package gateway

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/poller"
)

// Connections are served by as many pollers as processors, so what waits there holds up the others
// of its poller, until poller.Relieve finds it. Nothing that a client, an upstream or a store does
// slowly waits there.
func TestNoSlowPeerHoldsUpAPoller(t *testing.T) {
	if testEngine != EngineAuto {
		return // net/http has a goroutine for each connection
	}
	const head = " HTTP/1.1\r\nHost: weir.test\r\n"
	for name, slow := range map[string]struct {
		sends string
		until string // how an answer begins that comes before the wait; empty: none does
	}{
		"a head that is not whole":       {"GET /other HTTP/1.1\r\nHo", ""},
		"a short body that is not whole": {"POST /other" + head + "Content-Length: 10\r\n\r\nabc", ""},
		"a long body that is not whole":  {"POST /other" + head + "Content-Length: 100000\r\n\r\nabc", ""},
		"a body after 100 Continue":      {"POST /read" + head + "Expect: 100-continue\r\nContent-Length: 10\r\n\r\n", "HTTP/1.1 100"},
		"an unwanted body":               {"POST /refuses" + head + "Content-Length: 1000000\r\n\r\nabc", "HTTP/1.1 413"},
		"a malformed request":            {"GET /other HTTP/1.1\r\nHost : x\r\n\r\n", "HTTP/1.1 400"},
		"an answer's head":               {"GET /quiet" + head + "\r\n", ""},
		"an answer's body":               {"GET /begun" + head + "\r\n", "HTTP/1.1 200"},
		"an informational answer":        {"GET /hints" + head + "\r\n", "HTTP/1.1 103"},
		"a websocket":                    {"GET /socket" + head + "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n", "HTTP/1.1 101"},
		"answers that nobody reads":      {strings.Repeat("GET /large"+head+"\r\n", 500), ""},
		"refusals that nobody reads":     {strings.Repeat("GET /v1/wp/x"+head+"\r\n", 5000), ""},
		"what the store answers late":    {"GET /readyz" + head + "\r\n", ""},
		"HTTP/2":                         {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			// A poller that gets no processor for long is relieved too, but not in each try.
			const tries = 5
			for try := 1; ; try++ {
				before := poller.Relieved()
				slowBeside(t, slow.sends, slow.until)
				n := poller.Relieved() - before
				if n == 0 {
					return
				}
				if try == tries {
					t.Fatalf("a poller had to be relieved %d times", n)
				}
			}
		})
	}
}

// slowBeside has more clients than pollers send something and wait, and another one be answered.
func slowBeside(t *testing.T, sends, until string) {
	over, end := context.WithCancel(t.Context())
	defer end()
	e := open(t, nil, func(o *Options) {
		behind(t, func(w http.ResponseWriter, r *http.Request) { answerSlowly(over, w, r) })(o)
		o.Ready = func(ctx context.Context) error {
			select {
			case <-over.Done():
			case <-ctx.Done():
			}
			return nil
		}
	})
	for range 3 * runtime.GOMAXPROCS(0) {
		c := newQuick(e)
		c.ask(t) // a goroutine serves a new connection, the poller one that has waited
		go func() { _, _ = io.WriteString(c, sends) }()
		if until == "" {
			continue
		}
		line, err := c.in.ReadString('\n')
		if err != nil || !strings.HasPrefix(line, until) {
			t.Fatalf("%q, %v: want %s", line, err, until)
		}
	}
	var others []quick
	for range 2 * runtime.GOMAXPROCS(0) {
		others = append(others, newQuick(e))
	}
	for range 50 {
		for _, c := range others {
			c.ask(t)
		}
	}
}

// A quick is a client that is answered at once.
type quick struct {
	net.Conn
	in *bufio.Reader
}

func newQuick(e *edge) quick {
	c := e.dial()
	return quick{c, bufio.NewReader(c)}
}

func (c quick) ask(t *testing.T) {
	t.Helper()
	if _, err := io.WriteString(c, "GET /quick HTTP/1.1\r\nHost: weir.test\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(c.in, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v", res.Status, err)
	}
}

// answerSlowly is an upstream that answers as the path says, and not to the end before over ends.
func answerSlowly(over context.Context, w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/quick":
		_, _ = io.WriteString(w, "quick")
		return
	case "/large":
		_, _ = w.Write(make([]byte, 8<<10))
		return
	case "/refuses":
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		return
	case "/hints":
		w.WriteHeader(http.StatusEarlyHints)
	case "/begun":
		_, _ = w.Write([]byte("begun"))
		_ = http.NewResponseController(w).Flush()
	case "/socket":
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer func(c net.Conn) { _ = c.Close() }(c)
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	case "/read":
		_, _ = io.Copy(io.Discard, r.Body)
	}
	select {
	case <-over.Done():
	case <-r.Context().Done():
	}
}
