package upstream

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// refusing returns an address without a listener.
func refusing(t *testing.T) Address {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return Address{Host: l.Addr().String()}
}

// serving returns the address of a server.
func serving(t *testing.T, h http.HandlerFunc) Address {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return Address{Host: s.Listener.Addr().String()}
}

// A closingBody records whether it was closed.
type closingBody struct {
	io.Reader
	closed atomic.Bool
}

func (b *closingBody) Close() error { b.closed.Store(true); return nil }

func (b *closingBody) Read(p []byte) (int, error) {
	if b.closed.Load() {
		return 0, errors.New("read after it was closed")
	}
	return b.Reader.Read(p)
}

func base(t *testing.T) *http.Transport {
	t.Helper()
	b := &http.Transport{ResponseHeaderTimeout: 5 * time.Second}
	t.Cleanup(b.CloseIdleConnections)
	return b
}

// ask sends a request to its URL, whose address the pool replaces.
func ask(t *testing.T, through http.RoundTripper, method string, body io.ReadCloser) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequest(method, "http://first.invalid:1/path?query", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "shop.example.com"
	before := *req.URL
	res, err := through.RoundTrip(req)
	if *req.URL != before || req.Host != "shop.example.com" || req.Body != body && body != nil {
		t.Errorf("the caller's request was changed: %v", req.URL)
	}
	return res, err
}

func TestTheTransportRetriesWithTheBodyIfAnAddressRefuses(t *testing.T) {
	for _, length := range []int{0, 1, 100 << 10} {
		good := serving(t, func(w http.ResponseWriter, r *http.Request) {
			got, err := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %s %s %d %v", r.Method, r.Host, r.RequestURI, len(got), err)
		})
		p := open(t, options(refusing(t), good))
		through := p.Transport(base(t))
		for range 4 {
			body := &closingBody{Reader: strings.NewReader(strings.Repeat("x", length))}
			res, err := ask(t, through, "POST", body)
			if err != nil {
				t.Fatal(err)
			}
			got, _ := io.ReadAll(res.Body)
			res.Body.Close()
			if want := fmt.Sprintf("POST shop.example.com /path?query %d <nil>", length); string(got) != want {
				t.Errorf("the upstream got %q, want %q", got, want)
			}
			if !body.closed.Load() {
				t.Error("the request's body was not closed")
			}
		}
		if bad, good := p.addresses[0], p.addresses[1]; bad.failures != 1 || good.failures != 0 || bad.busy+good.busy != 0 {
			t.Errorf("%d and %d failures, %d busy: want 1, 0 and none", bad.failures, good.failures, bad.busy+good.busy)
		}
	}
}

func TestTheTransportReportsThatNoAddressConnects(t *testing.T) {
	p := open(t, options(refusing(t), refusing(t)))
	body := &closingBody{Reader: strings.NewReader("x")}
	if _, err := ask(t, p.Transport(base(t)), "POST", body); !errors.Is(err, ErrUnavailable) {
		t.Errorf("%v: want ErrUnavailable", err)
	}
	if !body.closed.Load() {
		t.Error("the request's body was not closed")
	}
}

func TestTheTransportSendsARequestOnce(t *testing.T) {
	var asked atomic.Int64
	breaking := func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		c, _, _ := w.(http.Hijacker).Hijack()
		c.Close()
	}
	p := open(t, options(serving(t, breaking), serving(t, breaking)))
	if res, err := ask(t, p.Transport(base(t)), "POST", &closingBody{Reader: strings.NewReader("x")}); err == nil {
		t.Errorf("an answer of %d", res.StatusCode)
	}
	if asked.Load() != 1 {
		t.Errorf("two upstreams were asked %d times by one request", asked.Load())
	}
	if failures := p.addresses[0].failures + p.addresses[1].failures; failures != 1 {
		t.Errorf("%d failures counted for a connection closed without an answer, want 1", failures)
	}
}

func TestTheEndOfAKeptConnectionIsNotAFailure(t *testing.T) {
	var asked atomic.Int64
	once := func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) > 2 {
			c, _, _ := w.(http.Hijacker).Hijack()
			c.Close()
		}
	}
	p := open(t, options(serving(t, once), serving(t, once)))
	through := p.Transport(base(t))
	for range 2 {
		res, err := ask(t, through, "POST", nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		res.Body.Close()
	}
	if _, err := ask(t, through, "POST", &closingBody{Reader: strings.NewReader("x")}); err == nil || asked.Load() != 3 {
		t.Errorf("%v after %d requests: want an error of the third", err, asked.Load())
	}
	if failures := p.addresses[0].failures + p.addresses[1].failures; failures != 0 {
		t.Errorf("%d failures counted for the end of a kept connection", failures)
	}
}

func TestAClientsFailureIsNotTheAddresss(t *testing.T) {
	hanging := func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body); <-r.Context().Done() }
	p := open(t, options(serving(t, hanging), serving(t, hanging)))
	through := p.Transport(base(t))
	broken := io.NopCloser(io.MultiReader(strings.NewReader("half a body"), errorReader{}))
	if _, err := ask(t, through, "POST", broken); err == nil {
		t.Error("an answer to half a body")
	}
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(20*time.Millisecond, cancel)
	req, err := http.NewRequestWithContext(ctx, "GET", "http://first.invalid:1/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := through.RoundTrip(req); !errors.Is(err, context.Canceled) {
		t.Errorf("%v: want the context's own", err)
	}
	for _, a := range p.addresses {
		if a.failures != 0 || a.busy != 0 {
			t.Errorf("%v: %d failures, %d busy", a, a.failures, a.busy)
		}
	}
}

type errorReader struct{}

func (errorReader) Read([]byte) (int, error) { return 0, errors.New("the client went away") }

func TestATimeoutOfTheHeadIsAFailure(t *testing.T) {
	release := make(chan struct{})
	hanging := func(http.ResponseWriter, *http.Request) { <-release }
	b := base(t)
	b.ResponseHeaderTimeout = 20 * time.Millisecond
	p := open(t, options(serving(t, hanging), serving(t, hanging)))
	defer close(release)
	_, err := ask(t, p.Transport(b), "GET", nil)
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("%v: want a time-out", err)
	}
	if p.addresses[0].failures != 1 {
		t.Errorf("%d failures, want 1", p.addresses[0].failures)
	}
}

func TestAnExchangeIsBusyUntilItsAnswerEnds(t *testing.T) {
	streaming := func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "first")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
	p := open(t, options(serving(t, streaming), serving(t, streaming)))
	through := p.Transport(base(t))
	busy := func() int {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.addresses[0].busy + p.addresses[1].busy
	}
	res, err := ask(t, through, "GET", nil)
	if err != nil {
		t.Fatal(err)
	}
	if busy() != 1 {
		t.Errorf("%d exchanges in flight, want the stream", busy())
	}
	res.Body.Close()
	res.Body.Close() // changes nothing
	if busy() != 0 {
		t.Errorf("%d exchanges in flight after the stream was closed", busy())
	}
}

func TestTheTransportForwardsAnUpgrade(t *testing.T) {
	echo := func(w http.ResponseWriter, r *http.Request) {
		c, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		line, _ := bufio.NewReader(rw).ReadString('\n')
		fmt.Fprint(c, line)
		_, _ = io.Copy(c, rw)
	}
	p := open(t, options(serving(t, echo), serving(t, echo)))
	req, err := http.NewRequest("GET", "http://first.invalid:1/", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "websocket")
	res, err := p.Transport(base(t)).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	both, ok := res.Body.(io.ReadWriteCloser)
	if !ok {
		t.Fatalf("the body of a 101 is a %T, which cannot be written to", res.Body)
	}
	fmt.Fprint(both, "hello\n")
	if line, err := bufio.NewReader(both).ReadString('\n'); line != "hello\n" {
		t.Errorf("%q, %v", line, err)
	}
	if half, ok := res.Body.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
		t.Error("the sending half cannot be closed")
	}
	both.Close()
	if p.addresses[0].busy+p.addresses[1].busy != 0 {
		t.Error("the upgrade is still in flight")
	}
}

func TestASingleAddressHasAState(t *testing.T) {
	release := make(chan struct{})
	good := serving(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Host)
		w.(http.Flusher).Flush()
		<-release
	})
	p := open(t, options(good))
	res, err := ask(t, p.Transport(base(t)), "GET", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if got, want := p.States()[0], (State{Address: good, Well: true, Busy: 1}); got != want {
		t.Errorf("before the end of its answer it is %+v, want %+v", got, want)
	}
	close(release)
	if got, _ := io.ReadAll(res.Body); string(got) != "shop.example.com" {
		t.Errorf("the upstream was asked for host %q", got)
	}
	if got, want := p.States()[0], (State{Address: good, Well: true}); got != want {
		t.Errorf("after its answer it is %+v, want %+v", got, want)
	}

	bad := refusing(t)
	p = open(t, options(bad))
	if _, err := ask(t, p.Transport(base(t)), "GET", nil); !errors.Is(err, ErrUnavailable) {
		t.Errorf("%v: want ErrUnavailable", err)
	}
	got := p.States()[0]
	if got.Since.IsZero() {
		t.Error("it is not known since when it is down")
	}
	got.Since = time.Time{}
	if want := (State{Address: bad, Failures: 1}); got != want {
		t.Errorf("an only address that refuses is %+v, want %+v", got, want)
	}
}
