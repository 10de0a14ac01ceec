package upstream

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"
)

// Transport returns a RoundTripper over base that sends each request to an address of the pool. If
// no connection to it can be made, the request goes to the next address, to each once at most. The
// outcome counts for or against the address. The connections are base's own. The request's Host is
// kept; the scheme and host of its URL are replaced in a copy. base must report its connections to
// net/http/httptrace, as http.Transport does; else no request is sent.
//
// A request goes out once at most. If it gets a kept connection that has ended or must not be used
// again, it goes to another connection, with its body, provided that not a byte of it went out. If
// a new connection fails like that, it goes to the next address. That needs a base whose Dial makes
// CountedConns, which are checked before each request.
func (p *Pool) Transport(base http.RoundTripper) http.RoundTripper { return &transport{p, base} }

// An AskError is why an exchange failed that had a connection to an address.
type AskError struct {
	Address Address
	Err     error
}

func (e *AskError) Error() string { return fmt.Sprintf("ask %v: %v", e.Address, e.Err) }
func (e *AskError) Unwrap() error { return e.Err }

type transport struct {
	pool *Pool
	base http.RoundTripper
}

// RoundTrip is http.RoundTripper's.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	p := t.pool
	body := hold(req)
	defer body.release()
	var tried set
	var last error
	for {
		now := time.Now()
		p.mu.Lock()
		a := p.choose(now, tried)
		if a == nil {
			p.mu.Unlock()
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, last)
		}
		turn := p.begin(a, now)
		p.mu.Unlock()

		res, link, err := t.ask(a, req, body)
		if err == nil {
			p.answered(&turn)
			p.watch(res, turn, link)
			return res, nil
		}
		turn.reused = link.reused.Load()
		unconnected := link.stage.Load() == asking
		switch {
		case req.Context().Err() != nil, body.failed():
			p.end(turn, nil)
			return nil, err
		case unconnected:
			p.end(turn, &connectError{err})
			if body.touched() {
				return nil, fmt.Errorf("connect to %v: %w", a, err)
			}
		default:
			p.end(turn, err)
			if isTimeout(err) || !link.unsent() {
				return nil, &AskError{a.Address, err}
			}
		}
		tried, last = tried.with(a), err
	}
}

// maxEnded is how many kept connections a request may find ended, one after another. Each is gone
// afterwards, so base runs out of them first, unless other requests refill it as fast.
const maxEnded = 1024

// ask sends req to a, and again while it gets a kept connection on which nothing went out. l is the
// last attempt's.
func (t *transport) ask(a *address, req *http.Request, body *heldBody) (res *http.Response, l *link, err error) {
	for range maxEnded {
		l = &link{body: body}
		res, err = t.base.RoundTrip(a.attempt(req, l))
		if err == nil {
			l.judge(res)
		}
		l.judged()
		if err == nil || req.Context().Err() != nil || !l.reused.Load() || !l.unsent() {
			break
		}
	}
	return res, l, err
}

// aimed returns req, or a shallow copy of it, with the URL of a.
func (a *address) aimed(req *http.Request) *http.Request {
	if req.URL.Scheme == a.scheme() && req.URL.Host == a.Host {
		return req
	}
	copied, u := *req, *req.URL
	u.Scheme, u.Host = a.scheme(), a.Host
	copied.URL = &u
	return &copied
}

// The stages of an attempt, as far as net/http reports them.
const (
	asking  int32 = iota + 1 // for a connection: nothing of the request was sent
	sending                  // on one
)

// A link is what net/http has reported of an attempt's connection.
type link struct {
	stage  atomic.Int32
	reused atomic.Bool
	conn   atomic.Pointer[CountedConn] // nil: not known
	taken  bool                        // the connection, until it is judged
	before atomic.Int64                // what had been sent on it
	end    context.CancelCauseFunc     // of the attempt
	over   atomic.Bool                 // the attempt has ended: nothing may go out any more
	body   *heldBody                   // the request's
}

// attempt returns a copy of req for one attempt at a.
func (a *address) attempt(req *http.Request, l *link) *http.Request {
	// ends with req's, and so with the answer's body
	ctx, end := context.WithCancelCause(req.Context())
	l.end = end
	r := a.aimed(req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { l.asks() },
		GotConn: func(got httptrace.GotConnInfo) { l.got(got.Conn, got.Reused) },
	})))
	if l.body != nil {
		l.body.offer()
		r.Body, r.GetBody = l.body, nil
	}
	return r
}

// A heldBody is a request's body that outlives an attempt that has not read it. nil: the request
// has no body.
type heldBody struct {
	io.ReadCloser
	read, closed, broke atomic.Bool
	ended               atomic.Bool // it was read to its end
	// from the attempt that is under way: its connection takes nothing
	withheld atomic.Bool
	length   int64        // as declared; 0 or less: no length is
	got      atomic.Int64 // how much of it was read

	mu       sync.Mutex
	held     bool // Close is postponed
	unwanted bool // Close was called meanwhile
}

// hold returns the body of a request.
func hold(req *http.Request) *heldBody {
	if req.Body == nil || req.Body == http.NoBody {
		return nil
	}
	return &heldBody{ReadCloser: req.Body, held: true, length: req.ContentLength}
}

func (b *heldBody) Read(p []byte) (int, error) {
	if b.withheld.Load() {
		return 0, ErrStale
	}
	b.read.Store(true)
	n, err := b.ReadCloser.Read(p)
	b.got.Add(int64(n))
	switch {
	case err == io.EOF:
		b.ended.Store(true)
	case err != nil && !b.closed.Load():
		b.broke.Store(true)
	}
	return n, err
}

func (b *heldBody) Close() error {
	b.mu.Lock()
	wait := b.held && !b.read.Load()
	b.unwanted = b.unwanted || wait
	b.mu.Unlock()
	if wait {
		return nil
	}
	b.closed.Store(true) // before it is: a read that fails then is not the body's failure
	return b.ReadCloser.Close()
}

// touched reports whether something was read, or a read was tried; failed whether a read failed,
// which the upstream did not cause.
func (b *heldBody) touched() bool { return b != nil && b.read.Load() }
func (b *heldBody) failed() bool  { return b != nil && b.broke.Load() }

// isWhole reports whether all of it was read, or there is none. The last byte of a declared length
// is the end: over HTTP/2 the frame that ends the stream may come much later.
func (b *heldBody) isWhole() bool {
	return b == nil || b.ended.Load() || b.length > 0 && b.got.Load() >= b.length
}

// withhold makes reads of the attempt that is under way fail. net/http reads a byte of some bodies
// before it writes anything.
func (b *heldBody) withhold() {
	if b != nil {
		b.withheld.Store(true)
	}
}

// offer prepares it for the next attempt, after one that may have closed it or was not allowed to
// read it.
func (b *heldBody) offer() {
	b.withheld.Store(false)
	b.mu.Lock()
	b.unwanted = false
	b.mu.Unlock()
}

// release closes it if the last attempt has, and postpones Close no more.
func (b *heldBody) release() {
	if b == nil {
		return
	}
	b.mu.Lock()
	closing := b.unwanted
	b.held = false
	b.mu.Unlock()
	if closing {
		_ = b.ReadCloser.Close()
	}
}

// watch ends the turn of an answer when its body has ended or is closed. Then it closes the
// connection if no request may follow on it.
func (p *Pool) watch(res *http.Response, t turn, l *link) {
	if isBodyless(res) {
		p.end(t, nil)
		return
	}
	watched := &watchedBody{ReadCloser: res.Body, end: sync.OnceFunc(func() {
		l.answerEnded()
		p.end(t, nil)
	})}
	res.Body = watched
	if both, ok := watched.ReadCloser.(io.ReadWriteCloser); ok {
		res.Body = &upgraded{watched, both}
	}
}

// A watchedBody is an answer's body that calls end when it is over.
type watchedBody struct {
	io.ReadCloser
	end func()
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.end()
	}
	return n, err
}

func (b *watchedBody) Close() error {
	b.end()
	return b.ReadCloser.Close()
}

// upgraded is the body of a 101: the connection.
type upgraded struct {
	*watchedBody
	io.Writer
}

// CloseWrite closes the sending half.
func (u *upgraded) CloseWrite() error {
	if half, ok := u.Writer.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return http.ErrNotSupported
}
