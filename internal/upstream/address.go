package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"slices"
	"syscall"
	"time"

	"github.com/weirlimit/weir/internal/wire"
)

// For how long an address that failed is avoided: the first time, and at most. Each failed retry
// doubles it.
const (
	firstPause = time.Second
	maxPause   = 30 * time.Second
)

// logPause is for how long the log has no second line that an address is down.
const logPause = 10 * time.Second

// An address is an Address and its health. The pool's mutex guards what changes.
//
// Which failures count against it:
//
//   - A connection that cannot be made counts: refused, unreachable, no such name, TLS fails,
//     Connect is over. It does not if this process has no more files, memory or ports, or if the
//     client went away.
//   - A time-out of Header, and a malformed head of an answer, count.
//   - A connection that is closed or reset before the head of an answer counts if it is new. A
//     kept one may be closed at any time.
//   - A connection that fails after the head of an answer does not count.
//   - A failed exchange does not count if others that began at the same time or later were
//     answered meanwhile: a client that knows a request without an answer must not take the
//     address from all.
//   - A failed exchange that began before the last failure that counted does not count: it is the
//     same failure.
//
// A failed health check (Pool.Check) is kept apart: it leaves the address out, and a later one
// takes it in again.
type address struct {
	Address
	index int         // in Pool.addresses
	tls   *tls.Config // nil: none

	kept []*Conn // a stack, so that few are in use, and the oldest are at the bottom
	busy int     // exchanges under way

	failures int       // since the last success; 0: it is healthy
	since    time.Time // of its last change of health; zero: none
	until    time.Time // avoided until then, while failures > 0
	trial    uint64    // the number of the exchange that probes it now; 0: none does
	trials   uint64    // how many such exchanges there were
	// how many failures have counted: an exchange that began before the last one proves nothing new
	epoch   uint64
	answers uint64 // exchanges that were answered

	out bool // the last health check failed

	logged   bool      // the log has that it is down
	loggedAt time.Time // when that was last logged
}

// A set is a set of addresses, by their index.
type set uint64

func (s set) with(a *address) set      { return s | 1<<a.index }
func (s set) contains(a *address) bool { return s&(1<<a.index) != 0 }

// A turn is one exchange at one address, and the state of the address when the exchange began.
type turn struct {
	at       *address
	epoch    uint64
	answers  uint64
	trial    uint64 // its number, if it is the exchange that probes the address; else 0
	reused   bool   // the connection carried an exchange before
	answered bool   // the head of an answer came
}

// choose returns the address for the next exchange that is not in tried: the least busy one of
// those that are healthy or due for a probe, else the one that is due first, and one that health
// checks leave out last; nil after all are tried.
func (p *Pool) choose(now time.Time, tried set) *address {
	if len(p.addresses) == 1 && tried == 0 {
		return p.addresses[0]
	}
	var best, soonest, out *address
	for i := range p.addresses {
		a := p.addresses[(p.next+i)%len(p.addresses)]
		switch {
		case tried.contains(a):
		case a.out:
			if out == nil || a.busy < out.busy {
				out = a
			}
		case a.failures == 0 || a.due(now):
			if best == nil || a.busy < best.busy {
				best = a
			}
		case soonest == nil || a.until.Before(soonest.until):
			soonest = a
		}
	}
	if best == nil {
		best = soonest
	}
	if best == nil {
		best = out
	}
	if best != nil {
		p.next = (best.index + 1) % len(p.addresses)
	}
	return best
}

// begin starts an exchange at a. The mutex is held.
func (p *Pool) begin(a *address, now time.Time) turn {
	a.busy++
	t := turn{at: a, epoch: a.epoch, answers: a.answers}
	if a.failures > 0 && a.due(now) {
		a.trials++
		a.trial, t.trial = a.trials, a.trials
	}
	return t
}

// due reports whether an address that was avoided is due for a probe. One exchange at a time is a
// probe. The mutex is held.
func (a *address) due(now time.Time) bool { return a.trial == 0 && !now.Before(a.until) }

// answered is called for the head of an answer: the address is healthy, unless it has failed since
// this exchange began.
func (p *Pool) answered(t *turn) {
	if t.answered {
		return
	}
	p.mu.Lock()
	back := p.success(t)
	p.mu.Unlock()
	p.logBack(t.at, back)
}

// success is answered with the mutex held. It reports whether the log should have that the address
// is back.
func (p *Pool) success(t *turn) (back bool) {
	a := t.at
	t.answered = true
	a.answers++
	if a.failures == 0 || t.epoch != a.epoch {
		return false
	}
	a.failures, a.trial = 0, 0
	if a.out {
		return false // a check will end that
	}
	a.since = time.Now()
	back, a.logged = a.logged, false
	return back
}

// end ends an exchange after which no connection is kept. failure is what went wrong before an
// answer's head; nil: nothing, or nothing that the upstream caused.
func (p *Pool) end(t turn, failure error) {
	now := time.Now()
	a := t.at
	p.mu.Lock()
	a.busy--
	if t.trial != 0 && t.trial == a.trial {
		a.trial = 0
	}
	if !t.countsAgainst(failure) {
		p.mu.Unlock()
		return
	}
	// An exchange that came only because every address was avoided does not make the pause longer:
	// there may be thousands.
	if a.failures == 0 {
		a.since = now
	}
	if a.failures == 0 || t.trial != 0 {
		a.failures++
	}
	a.epoch++
	pause := min(firstPause<<min(a.failures-1, 10), maxPause)
	a.until = now.Add(pause)
	kept := a.takeKept() // connections from before the failure are not used again
	logs := a.logDown(now)
	p.mu.Unlock()
	closeAll(kept)
	if logs {
		p.logDown(a, failure)
	}
}

// logDown reports whether the log should have that a is down, and records that it has. The mutex is
// held.
func (a *address) logDown(now time.Time) bool {
	if a.logged || !a.loggedAt.IsZero() && now.Sub(a.loggedAt) < logPause {
		return false
	}
	a.logged, a.loggedAt = true, now
	return true
}

func (p *Pool) logDown(a *address, failure error) {
	p.log.Warn("an upstream address is down: others are preferred until it answers again", "upstream", a.String(), "error", failure)
}

func (p *Pool) logBack(a *address, back bool) {
	if back {
		p.log.Info("an upstream address is back", "upstream", a.String())
	}
}

// A connectError is why a connection could not be made.
type connectError struct{ error }

func (e *connectError) Unwrap() error { return e.error }

// countsAgainst reports whether the failure of an exchange counts against its address. The mutex is
// held.
func (t *turn) countsAgainst(failure error) bool {
	if failure == nil || t.answered || t.epoch != t.at.epoch || isOurs(failure) {
		return false
	}
	var connect *connectError
	if errors.As(failure, &connect) {
		return true
	}
	if t.answers != t.at.answers {
		return false
	}
	return !t.reused || isAlive(failure)
}

// isAlive reports whether the failure of a kept connection is more than that the other side closed
// it: it did not answer in time, or its answer was malformed.
func isAlive(err error) bool {
	var malformed *wire.Refusal
	return isTimeout(err) || errors.As(err, &malformed)
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// isOurs reports whether this side caused an error: it has run out of something, or has ended the
// exchange.
func isOurs(err error) bool {
	return slices.ContainsFunc([]error{context.Canceled, syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL}, func(ours error) bool {
		return errors.Is(err, ours)
	})
}

// pop takes the kept connection that was used last, or returns nil. The caller holds the mutex.
func (a *address) pop() *Conn {
	last := len(a.kept) - 1
	if last < 0 {
		return nil
	}
	c := a.kept[last]
	a.kept[last] = nil
	a.kept = a.kept[:last]
	return c
}

// popIdle takes the kept connections that were last used before a time. The mutex is held.
func (a *address) popIdle(before time.Time) []*Conn {
	n := 0
	for n < len(a.kept) && a.kept[n].since.Before(before) {
		n++
	}
	if n == 0 {
		return nil
	}
	idle := slices.Clone(a.kept[:n])
	a.kept = slices.Delete(a.kept, 0, n)
	return idle
}

// takeKept takes all kept connections. The mutex is held.
func (a *address) takeKept() []*Conn {
	all := a.kept
	a.kept = nil
	return all
}

// host returns the name that a certificate of the address must have.
func (a Address) host() string {
	host, _, _ := net.SplitHostPort(a.Host) // New has checked it
	return host
}

// AddressOf returns the address that an http or https URL names, whose path is ignored, or a URL
// of a Unix socket.
func AddressOf(u *url.URL) Address {
	if IsSocket(u) {
		return Address{Host: socketHost(u.Path)}
	}
	a := Address{TLS: u.Scheme == "https", Host: u.Host}
	if u.Port() == "" {
		port := "80"
		if a.TLS {
			port = "443"
		}
		a.Host = net.JoinHostPort(u.Hostname(), port)
	}
	return a
}
