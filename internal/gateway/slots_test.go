package gateway

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
)

// oneAddress is the caller of these tests.
type oneAddress struct{}

func (oneAddress) AppendKey(dst []byte, source string) ([]byte, bool) {
	if source != "ip" {
		return dst, false
	}
	return append(dst, 127, 0, 0, 1), true
}

// A settled is a policy of one limiter for all requests, and what is left of it.
type settled struct {
	t       testing.TB
	decider *weir.Decider
}

// settling returns a policy of one limiter by address that change completes.
func settling(t testing.TB, windows []string, change func(*weir.Limiter)) *settled {
	t.Helper()
	route, err := weir.ParseRoute("/*")
	if err != nil {
		t.Fatal(err)
	}
	l := weir.Limiter{Name: "all", Routes: []weir.Route{route}}
	for _, s := range windows {
		w, err := weir.ParseWindow(s)
		if err != nil {
			t.Fatal(err)
		}
		l.Windows = append(l.Windows, w)
	}
	change(&l)
	return &settled{t, testDecider(t, weir.Policy{Limiters: []weir.Limiter{l}})}
}

func (s *settled) use(o *Options) { o.Decider = s.decider }

// standing returns where the first window is, or the limit in flight.
func (s *settled) standing(inFlight bool) weir.Standing {
	s.t.Helper()
	d, err := s.decider.Decide(context.Background(), weir.Request{Method: "GET", Path: "/", Keys: oneAddress{}, Cost: weir.Peek})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, w := range d.Standings() {
		if w.InFlight == inFlight {
			return w
		}
	}
	s.t.Fatalf("no such standing: %v", d.Standings())
	return weir.Standing{}
}

func (s *settled) slots() int64 { s.t.Helper(); return s.standing(true).Count }
func (s *settled) spent() int64 { s.t.Helper(); return s.standing(false).Count }

// slotsOf is a policy with a limit in flight by address.
func slotsOf(t testing.TB, limit int) *settled {
	t.Helper()
	return settling(t, []string{"1000000 per hour by ip"}, func(l *weir.Limiter) {
		var err error
		if l.InFlight, err = weir.ParseInFlight(fmt.Sprintf("%d by ip", limit)); err != nil {
			t.Fatal(err)
		}
	})
}

// Of 100 parallel streams with 10 slots exactly 10 are admitted. The others are answered 429 with
// Retry-After: 1. The slots are free again when the streams have ended, and not before.
func TestSlotsAreHeldUntilAStreamHasEnded(t *testing.T) {
	const limit, all = 10, 100
	end, stop := make(chan bool), make(chan bool)
	defer close(stop)
	o := newOrigin(t, func(s *served) {
		for s.request() != nil {
			s.answers("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n:\n\n\r\n")
			select {
			case <-end:
			case <-stop:
				return
			}
			s.answers("0\r\n\r\n")
		}
	})
	policy := slotsOf(t, limit)
	e := open(t, nil, func(options *Options) { o.use(options); policy.use(options) })
	for range 2 {
		var admitted []*caller
		var mu sync.Mutex
		var asked sync.WaitGroup
		refused := 0
		for range all {
			c := e.caller()
			asked.Go(func() {
				c.request("GET /v1/wp/events", "Connection: close")
				status, h := c.head()
				mu.Lock()
				defer mu.Unlock()
				switch {
				case status == "200 OK":
					admitted = append(admitted, c)
				case status == "429 Too Many Requests" && h.Get("Retry-After") == "1" && h.Get("X-Ratelimit-Remaining") == "0" && h.Get("X-Ratelimit-Limit") == fmt.Sprint(limit):
					refused++
				default:
					t.Errorf("%s %v", status, h)
				}
			})
		}
		asked.Wait()
		if len(admitted) != limit || refused != all-limit {
			t.Fatalf("%d are admitted and %d refused of %d, want %d", len(admitted), refused, all, limit)
		}
		if n := policy.slots(); n != limit {
			t.Errorf("%d slots are held during %d streams", n, limit)
		}
		for range admitted {
			end <- true
		}
		for _, c := range admitted {
			if _, err := io.ReadAll(c); err != nil {
				t.Error(err)
			}
		}
		eventually(t, "all slots are free", func() bool { return policy.slots() == 0 })
	}
}

// A slot is free when its request has ended in any way: the client goes away in any phase, orderly
// or by a reset; the upstream does not answer, resets in the head or in the body, or sends
// nonsense.
func TestNoSlotLeaks(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of real time")
	}
	arrived := make(chan bool, 1)
	o := newOrigin(t, func(s *served) {
		r := s.request()
		if r == nil {
			return
		}
		select {
		case arrived <- true:
		default:
		}
		switch r.URL.Path {
		case "/v1/wp/socket":
			s.answers(switching)
		case "/v1/wp/events":
			s.answers("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n:\n\n\r\n")
		case "/v1/wp/flood":
			s.answers("HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n")
			_, _ = io.Copy(s.Conn, zeros{})
		case "/v1/wp/closed":
			return
		case "/v1/wp/half":
			s.answers("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
			return
		case "/v1/wp/reset":
			s.answers("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
			_ = s.Conn.(*net.TCPConn).SetLinger(0)
			return
		case "/v1/wp/nonsense":
			s.answers("nonsense\r\n\r\n")
			return
		case "/v1/wp/switches":
			s.answers(switching)
			return
		case "/v1/wp/early":
			s.answers("HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n")
			return
		}
		_, _ = io.Copy(io.Discard, s)
	})
	policy := slotsOf(t, 3)
	e := open(t, nil, func(options *Options) { o.use(options); policy.use(options) })
	ends := func(what string, c *caller) {
		t.Helper()
		c.Close()
		eventually(t, what+": no slot is held", func() bool { return policy.slots() == 0 && e.gateway.InFlight() == 0 })
		select { // of a phase that did not wait for it
		case <-arrived:
		default:
		}
	}
	for range 3 {
		for _, in := range goneIn {
			for _, how := range []string{"ends", "resets"} {
				c := e.caller()
				in.leave(e, c, arrived)
				if n := policy.slots(); n != 1 {
					t.Errorf("%s: %d slots are held", in.name, n)
				}
				if how == "resets" {
					_ = c.Conn.(*net.TCPConn).SetLinger(0)
				}
				ends(in.name+", "+how, c)
			}
		}
		for _, path := range []string{"closed", "half", "reset", "nonsense", "switches"} {
			c := e.caller()
			c.request("GET /v1/wp/" + path)
			if _, err := c.ReadByte(); err != nil && path != "reset" {
				t.Errorf("%s: %v", path, err)
			}
			ends(path, c)
		}
		c := e.caller()
		c.request("POST /v1/wp/early", "Content-Length: 1000000")
		<-arrived
		c.head()
		ends("an early answer", c)
	}
}

// A tunnel holds its slot until both halves have ended.
func TestATunnelHoldsItsSlotUntilBothHalvesEnd(t *testing.T) {
	proceed := make(chan bool)
	o := newOrigin(t, func(s *served) {
		if s.request() == nil {
			return
		}
		s.answers(switching)
		_, _ = io.Copy(io.Discard, s) // until the client has closed its half
		<-proceed
		s.answers("rest")
	})
	policy := slotsOf(t, 1)
	e := open(t, nil, func(options *Options) { o.use(options); policy.use(options) })
	c := e.socket()
	_ = c.Conn.(*net.TCPConn).CloseWrite()
	other := e.caller()
	other.request("GET /v1/wp/x")
	if res, _ := other.readAnswer("GET"); res.StatusCode != http.StatusTooManyRequests {
		t.Errorf("beside a tunnel of which one half is open: %d", res.StatusCode)
	}
	proceed <- true
	if b, err := io.ReadAll(c); string(b) != "rest" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	eventually(t, "no slot is held", func() bool { return policy.slots() == 0 })
}

// A drain under load leaves no slot: of requests that end, are cut off, or are refused, and of
// tunnels.
func TestADrainLeavesNoSlot(t *testing.T) {
	arrived, proceed := make(chan bool, 100), make(chan bool)
	o := newOrigin(t, func(s *served) {
		for r := s.request(); r != nil; r = s.request() {
			switch r.URL.Path {
			case "/v1/wp/socket":
				s.answers(switching)
				arrived <- true
				_, _ = io.Copy(io.Discard, s)
				return
			case "/v1/wp/wait":
				arrived <- true
				<-proceed
			case "/v1/wp/half":
				s.answers("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n")
				arrived <- true
				<-proceed
				s.answers("0\r\n\r\n")
				continue
			}
			s.answers(ok200)
		}
	})
	policy := slotsOf(t, 12)
	e := open(t, nil, func(options *Options) { o.use(options); policy.use(options) })
	for range 4 {
		for _, path := range []string{"wait", "half"} {
			e.caller().request("GET /v1/wp/" + path)
			<-arrived
		}
		e.caller().request("GET /v1/wp/socket", "Connection: Upgrade", "Upgrade: websocket")
		<-arrived
	}
	for range 5 {
		c := e.caller()
		c.request("GET /v1/wp/x")
		if res, _ := c.readAnswer("GET"); res.StatusCode != http.StatusTooManyRequests {
			t.Errorf("beyond all slots: %d", res.StatusCode)
		}
	}
	if n := policy.slots(); n != 12 {
		t.Errorf("%d slots are held, want 12", n)
	}
	stopped := make(chan bool)
	go func() { e.stop(); close(stopped) }()
	close(proceed)
	<-stopped
	if n := policy.slots(); n != 0 {
		t.Errorf("%d slots are held after a drain", n)
	}
}

// A request that the gateway answers itself is counted, and holds no slot after its answer.
func TestAnAnswerOfTheGatewaysOwnHoldsNoSlot(t *testing.T) {
	o := answering(t, ok200)
	policy := slotsOf(t, 2)
	e := open(t, nil, func(options *Options) { o.use(options); policy.use(options); options.Limits.Body = 10 })
	for _, line := range []string{"GET /v1/wp/%2f", "BREW /v1/wp/x", "OPTIONS *", "POST /v1/wp/x"} {
		c := e.caller()
		for range 5 {
			c.request(line, "Content-Length: 20")
			c.write("%s", "01234567890123456789")
			if _, err := http.ReadResponse(c.Reader, nil); err != nil {
				break
			}
		}
		c.Close()
		eventually(t, line+": no slot is held", func() bool { return policy.slots() == 0 })
	}
}

// A panic while a request is served leaves no slot.
func TestAPanicLeavesNoSlot(t *testing.T) {
	o := answering(t, ok200)
	policy := slotsOf(t, 2)
	var asked atomic.Int64
	e := open(t, nil, func(options *Options) {
		o.use(options)
		policy.use(options)
		options.Observe = func(answer.Observation) {
			if asked.Add(1) <= 5 {
				panic("an observer fails")
			}
		}
	})
	for range 5 {
		if res := e.ask("GET /v1/wp/x"); res.StatusCode != http.StatusInternalServerError {
			t.Errorf("a panic is answered %d", res.StatusCode)
		}
	}
	eventually(t, "no slot is held", func() bool { return policy.slots() == 0 })
	if res := e.ask("GET /v1/wp/x"); res.StatusCode != http.StatusOK {
		t.Errorf("the next request is answered %d", res.StatusCode)
	}
}
