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

// Transport returns a RoundTripper over base that sends each request to an address of the pool, passing on to the next one
// where no connection can be made, each at most once, and that judges addresses by the outcome as the pool does. The connections
// are base's own. A request goes out once at most; one of which nothing went out, because a kept connection ended, goes to another where
// base's Dial makes CountedConns, which are tried first. It keeps its Host; its URL's scheme and host are replaced in a copy. base must report its connections to
// net/http/httptrace, as http.Transport does: else nothing is passed on.
func (p *Pool) Transport(base http.RoundTripper) http.RoundTripper { return &transport{p, base} }

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

		var link link
		res, err := t.base.RoundTrip(a.attempt(req, &link, body))
		if err == nil {
			link.judge(res, body)
		}
		link.judged()
		if err == nil {
			p.answered(&turn)
			p.watch(res, turn)
			return res, nil
		}
		turn.reused = link.reused.Load()
		unsent := link.stage.Load() == asking
		switch {
		case req.Context().Err() != nil, body.failed():
			p.end(turn, nil)
			return nil, err
		case !unsent:
			p.end(turn, err)
			return nil, fmt.Errorf("ask %v: %w", a, err)
		}
		p.end(turn, &connectError{err})
		if body.touched() {
			return nil, fmt.Errorf("connect to %v: %w", a, err)
		}
		tried, last = tried.with(a), err
	}
}

// aimed returns req, or a shallow copy of it, that goes to a.
func (a *address) aimed(req *http.Request) *http.Request {
	if req.URL.Scheme == a.scheme() && req.URL.Host == a.Host {
		return req
	}
	copied, u := *req, *req.URL
	u.Scheme, u.Host = a.scheme(), a.Host
	copied.URL = &u
	return &copied
}

// The stages of an attempt, as far as net/http tells of them.
const (
	asking  int32 = iota + 1 // for a connection: nothing of the request was sent
	sending                  // on one
)

// A link is what was heard of an attempt's connection.
type link struct {
	stage  atomic.Int32
	reused atomic.Bool
	conn   atomic.Pointer[CountedConn] // nil: not known
	taken  bool                        // the connection, until it is judged
	before atomic.Int64                // what had been sent on it
	end    context.CancelCauseFunc     // of the attempt
	over   atomic.Bool                 // the attempt has ended: nothing is to go out any more
}

// attempt returns a copy of req for one attempt at a.
func (a *address) attempt(req *http.Request, l *link, body *heldBody) *http.Request {
	ctx, end := context.WithCancelCause(req.Context()) // ends with req's, and so with the answer's body
	l.end = end
	r := a.aimed(req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { l.asks() },
		GotConn: func(got httptrace.GotConnInfo) { l.got(got.Conn, got.Reused) },
	})))
	if body != nil {
		body.unwant()
		r.Body, r.GetBody = body, nil
	}
	return r
}

// A heldBody is a request's body that outlives an attempt which did not come to read it. nil: there is none.
type heldBody struct {
	io.ReadCloser
	read, closed, broke atomic.Bool
	ended               atomic.Bool // it was read to its end

	mu       sync.Mutex
	held     bool // closing it waits
	unwanted bool // it was to be closed meanwhile
}

// hold returns the body of a request.
func hold(req *http.Request) *heldBody {
	if req.Body == nil || req.Body == http.NoBody {
		return nil
	}
	return &heldBody{ReadCloser: req.Body, held: true}
}

func (b *heldBody) Read(p []byte) (int, error) {
	b.read.Store(true)
	n, err := b.ReadCloser.Read(p)
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
	b.closed.Store(true) // before it is: what a read says then is no fault of the body
	return b.ReadCloser.Close()
}

// touched reports whether anything was read of it, or tried to be; failed whether that failed, which is not the upstream's doing.
func (b *heldBody) touched() bool { return b != nil && b.read.Load() }
func (b *heldBody) failed() bool  { return b != nil && b.broke.Load() }

// wasWhole reports whether all of it was read, or there is none.
func (b *heldBody) wasWhole() bool { return b == nil || b.ended.Load() }

// unwant forgets that the last attempt closed it.
func (b *heldBody) unwant() {
	b.mu.Lock()
	b.unwanted = false
	b.mu.Unlock()
}

// release closes it if the last attempt has, and lets closing through from now on.
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

// watch ends the turn of an answer when its body has ended or is closed.
func (p *Pool) watch(res *http.Response, t turn) {
	if res.Body == nil || res.Body == http.NoBody {
		p.end(t, nil)
		return
	}
	watched := &watchedBody{ReadCloser: res.Body, end: sync.OnceFunc(func() { p.end(t, nil) })}
	res.Body = watched
	if both, ok := watched.ReadCloser.(io.ReadWriteCloser); ok {
		res.Body = &upgraded{watched, both}
	}
}

// A watchedBody is an answer's body that tells when it is over.
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
