package upstream

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// A Check is how the addresses of a pool are asked regularly whether they serve.
type Check struct {
	Target string // of the request: a path, and a query if it has one
	Host   string // the request's Host; empty: that of the address, "localhost" of a socket
	// between two checks of an address, a tenth more or less at random, so that the nodes of a
	// fleet do not ask at once; more than zero
	Every  time.Duration
	Within time.Duration // for the head of an answer to arrive; more than zero
}

// Check asks each address until ctx ends, the first time at once. An address that does not answer a
// check in time with a status of 200 to 399 is left out: no request goes to it while there is
// another, not even as a probe, until a check succeeds. That also ends a pause that requests have
// caused meanwhile, since the check has seen the end of the outage. An address that no check finds
// fault with is avoided after failed requests all the same: both must be content. Each check has a
// connection of its own, which is closed after it.
func (p *Pool) Check(ctx context.Context, c Check) {
	var all sync.WaitGroup
	for _, a := range p.addresses {
		all.Go(func() { p.checkRegularly(ctx, a, c) })
	}
	all.Wait()
}

func (p *Pool) checkRegularly(ctx context.Context, a *address, c Check) {
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, host string) (net.Conn, error) {
			return Dial(ctx, host, p.options.Dial)
		},
		TLSClientConfig:   a.tls,
		DisableKeepAlives: true,
		Protocols:         new(http.Protocols),
	}
	transport.Protocols.SetHTTP1(true)
	defer transport.CloseIdleConnections()
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
		begun := time.Now()
		err := a.ask(ctx, transport, c)
		if ctx.Err() != nil {
			return
		}
		p.checked(a, err)
		next.Reset(max(jittered(c.Every)-time.Since(begun), 0))
	}
}

// jittered returns a tenth more or less than d.
func jittered(d time.Duration) time.Duration { return d - d/10 + rand.N(d/5+1) }

// ask sends one check.
func (a *address) ask(ctx context.Context, through http.RoundTripper, c Check) error {
	ctx, cancel := context.WithTimeout(ctx, c.Within)
	defer cancel()
	u, err := url.ParseRequestURI(c.Target)
	if err != nil {
		return fmt.Errorf("health check: %w", err)
	}
	u.Scheme, u.Host = a.scheme(), a.Host
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return fmt.Errorf("health check: %w", err)
	}
	r.Host = c.Host
	if _, isSocket := SocketOf(a.Host); isSocket && c.Host == "" {
		r.Host = "localhost"
	}
	r.Header.Set("User-Agent", "Weir-Health-Check")
	res, err := through.RoundTrip(r)
	if err != nil {
		return fmt.Errorf("health check %s of %v: %w", c.Target, a.Address, err)
	}
	defer res.Body.Close()
	if res.StatusCode < 200 || res.StatusCode > 399 {
		return fmt.Errorf("health check %s of %v: status %d: expected 200 to 399", c.Target, a.Address, res.StatusCode)
	}
	return nil
}

// checked records the result of a check.
func (p *Pool) checked(a *address, failure error) {
	now := time.Now()
	p.mu.Lock()
	if isOurs(failure) { // it proves nothing
		p.mu.Unlock()
		return
	}
	var logs, back bool
	switch {
	case failure != nil:
		if !a.out && a.failures == 0 {
			a.since = now
		}
		a.out = true
		logs = a.logDown(now)
	case a.out:
		a.out, a.failures, a.trial, a.since = false, 0, 0, now
		back, a.logged = a.logged, false
	}
	p.mu.Unlock()
	if logs {
		p.logDown(a, failure)
	}
	p.logBack(a, back)
}

// IsOut reports whether checks find fault with every address. It is false without checks.
func (p *Pool) IsOut() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.addresses {
		if !a.out {
			return false
		}
	}
	return true
}
