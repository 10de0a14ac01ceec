package verify

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Bounds of one answer. The deployment may be hostile.
const (
	answerTime  = 15 * time.Second // from sending a request to the end of its answer
	connectTime = 10 * time.Second
	headerBytes = 64 << 10
	bodyBytes   = 64 << 10
	// The other side may be about to close a connection that was idle for longer.
	keptIdleFor  = 2 * time.Second
	userAgent    = "weir-verify"
	verifyOrigin = "https://verify.example.com"
)

// A request is a request to send.
type request struct {
	method string
	path   string // as sent, after the base path
	query  string // as sent, after that of the path; "": none
	host   string // Host; "": the URL's
	// In addition to those of every request; an empty value removes one of those.
	fields map[string]string
	lines  http.Header // fields of several lines each; on HTTP/1.1 the names are sent as spelled
	body   string
	beside bool  // it need not be the limiter's: a 502 is an answer like any other
	fresh  bool  // on a new connection
	on     *slot // on this connection; nil: any
	asIs   bool  // a refusal by the slots of in_flight is an answer like any other
}

// with returns the request with one more field.
func (r request) with(name, value string) request {
	fields := map[string]string{name: value}
	for k, v := range r.fields {
		if _, ok := fields[k]; !ok {
			fields[k] = v
		}
	}
	r.fields = fields
	return r
}

// An answer is a response, read to its end or to the bound.
type answer struct {
	request request
	status  int
	proto   string
	header  http.Header
	body    []byte
	refused bool // with another status than 429
	fields

	// Just before the request was written, just after the answer was read; with the monotonic
	// clock.
	sent, at time.Time
	known    int64 // the latest Date of any answer before this request was sent; absent: none
}

var errBudget = errors.New("the planned number of requests is used up")

// A wire sends requests, never more than its budget, over a bounded number of connections. It uses
// ClientConn, since net/http's Transport resends a request by itself if a kept connection breaks.
type wire struct {
	base      *url.URL
	header    http.Header
	transport *http.Transport
	holding   *http.Transport // of held requests
	slots     chan *slot      // free ones; every slot has at most one connection
	all       []*slot
	lone      chan struct{} // holds one value: the right to keep a connection for several requests

	budget int64
	sent   atomic.Int64

	mu   sync.Mutex
	date int64 // the latest Date of any answer
}

// A slot is the right to one connection, and the connection if it is open.
type slot struct {
	conn *http.ClientConn
	used time.Time
}

func newWire(o *Options, budget int) *wire {
	w := &wire{base: o.URL, header: o.Header, slots: make(chan *slot, o.Workers), lone: make(chan struct{}, 1), budget: int64(budget), date: absent}
	dial := o.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	var config *tls.Config
	if o.TLS != nil {
		config = o.TLS.Clone()
	}
	w.transport = &http.Transport{
		DialContext:            dial,
		TLSClientConfig:        config,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: headerBytes,
	}
	w.holding = newHolding(w.transport)
	w.lone <- struct{}{}
	for range o.Workers {
		s := new(slot)
		w.all = append(w.all, s)
		w.slots <- s
	}
	return w
}

// close closes all connections. No request may be under way.
func (w *wire) close() {
	for _, s := range w.all {
		s.drop()
	}
	w.transport.CloseIdleConnections()
	w.holding.CloseIdleConnections()
}

func (s *slot) drop() {
	if s.conn != nil {
		_ = s.conn.Close()
		s.conn = nil
	}
}

// send sends one request, once, and reads the answer. It returns errBudget if nothing was sent
// since the budget is used up; other errors are the network's.
func (w *wire) send(ctx context.Context, r request, take func() bool) (*answer, error) {
	s := r.on
	if s == nil {
		if s = w.hold(ctx); s == nil {
			return nil, ctx.Err()
		}
		defer w.free(s)
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	if err := w.connect(ctx, s, r); err != nil {
		return nil, &lostError{err: err, unsent: true}
	}
	out, err := w.compose(ctx, r)
	if err != nil {
		return nil, err
	}
	if !take() {
		return nil, errBudget
	}
	if w.sent.Add(1) > w.budget {
		w.sent.Add(-1)
		return nil, errBudget
	}
	a, err := w.exchange(s, out)
	if err != nil {
		s.drop()
		return nil, &lostError{err: err}
	}
	a.request = r
	return a, nil
}

// hold takes a free connection. It returns nil if ctx ends first.
func (w *wire) hold(ctx context.Context) *slot {
	select {
	case s := <-w.slots:
		return s
	case <-ctx.Done():
		return nil
	}
}

func (w *wire) free(s *slot) { w.slots <- s }

// A lostError reports that a request has no answer.
type lostError struct {
	err    error
	unsent bool // the request was not sent
}

func (e *lostError) Error() string { return e.err.Error() }
func (e *lostError) Unwrap() error { return e.err }

// connect opens the slot's connection, unless it is usable.
func (w *wire) connect(ctx context.Context, s *slot, r request) error {
	if s.conn != nil && (r.fresh || s.conn.Err() != nil || s.conn.Available() < 1 || time.Since(s.used) > keptIdleFor) {
		s.drop()
	}
	if s.conn != nil {
		return nil
	}
	return w.connectBy(ctx, w.transport, s)
}

// connectBy opens the slot's connection.
func (w *wire) connectBy(ctx context.Context, by *http.Transport, s *slot) error {
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	port := w.base.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[w.base.Scheme]
	}
	conn, err := by.NewClientConn(ctx, w.base.Scheme, net.JoinHostPort(w.base.Hostname(), port))
	if err != nil {
		return fmt.Errorf("connect to %s: %w", w.base.Host, err)
	}
	s.conn = conn
	return nil
}

// compose returns the request as it is sent. The path is not normalized.
func (w *wire) compose(ctx context.Context, r request) (*http.Request, error) {
	var body io.Reader
	if r.body != "" {
		body = strings.NewReader(r.body)
	}
	u := *w.base
	u.Path, u.RawPath, u.RawQuery, u.Fragment, u.User = "", "", "", "", nil
	out, err := http.NewRequestWithContext(ctx, r.method, u.String(), body)
	if err != nil {
		return nil, fmt.Errorf("compose %s %s: %w", r.method, r.path, err)
	}
	out.GetBody = nil // a request is never resent
	path, query, _ := strings.Cut(r.path, "?")
	out.URL.Opaque = strings.TrimSuffix(w.base.EscapedPath(), "/") + path
	out.URL.RawQuery = joined(query, "&", r.query)
	if r.host != "" {
		out.Host = r.host
	}
	out.Header.Set("User-Agent", userAgent)
	if r.body != "" {
		out.Header.Set("Content-Type", "application/json")
	}
	for name, values := range w.header {
		out.Header[http.CanonicalHeaderKey(name)] = values
	}
	for name, value := range r.fields {
		if value == "" {
			out.Header.Del(name)
			continue
		}
		out.Header.Set(name, value)
	}
	for name := range r.lines {
		out.Header.Del(name)
	}
	for name, values := range r.lines {
		out.Header[name] = values
	}
	return out, nil
}

// joined returns two texts with a separator between them, which is left out if one is empty.
func joined(a, separator, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + separator + b
}

func (w *wire) exchange(s *slot, out *http.Request) (*answer, error) {
	a := &answer{known: w.latest(), sent: time.Now()}
	response, err := s.conn.RoundTrip(out)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", out.Method, out.URL.Opaque, err)
	}
	// What follows is not a body, and no context ends reading it.
	if response.StatusCode != http.StatusSwitchingProtocols {
		a.body, err = io.ReadAll(io.LimitReader(response.Body, bodyBytes+1))
	}
	a.at = time.Now()
	a.status, a.proto, a.header = response.StatusCode, response.Proto, response.Header
	a.fields = readFields(response.Header)
	tooLong := len(a.body) > bodyBytes
	if tooLong {
		a.body = a.body[:bodyBytes]
	}
	_ = response.Body.Close()
	// A hostile answer to HEAD may have a body.
	if tooLong || response.Close || response.StatusCode == http.StatusSwitchingProtocols || out.Method == http.MethodHead {
		s.drop()
	}
	s.used = a.at
	if err != nil {
		return nil, fmt.Errorf("%s %s: read the answer: %w", out.Method, out.URL.Opaque, err)
	}
	w.learn(a.date)
	return a, nil
}

func (w *wire) latest() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.date
}

func (w *wire) learn(date int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.date = max(w.date, date)
}
