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

// How long an address that failed is left alone: the first time, and at most. Each failure when it is tried again doubles it.
const (
	firstPause   = time.Second
	maxPause = 30 * time.Second
)

// quietFor is how long the log is not told again that an address is down.
const quietFor = 10 * time.Second

// An address is an Address and how it is doing. The pool's mutex guards what changes.
//
// What counts against it, by what happened:
//
//	refused, unreachable, no such name, TLS fails, Connect is over   counts
//	this process has no more files, memory or ports                  does not: it says nothing of the address
//	the client went away                                             does not
//	Header is over without an answer                                 counts
//	closed, reset or nonsense before an answer's head                counts on a new connection; on one that was kept only nonsense
//	                                                                 and time-outs do: kept ones may be closed at any time
//	the connection fails after an answer's head                      does not
//	any of these of an exchange, when others that began with it, or  does not: the address answers, this request does not get one, and
//	since, were answered meanwhile                                   a caller who knows such a request must not take it away from all
//	any of these once more, of an exchange that began before the     does not: it is the same failure
//	last failure counted
type address struct {
	Address
	index int         // in Pool.addresses
	tls   *tls.Config // nil: none

	kept []*Conn // the last used on top; so that the oldest are at the bottom, and few are in use
	busy int     // exchanges under way

	failures int       // since the last success; 0: it is well
	until    time.Time // left alone until then, while failures > 0
	trial    uint64    // the number of the exchange that is trying it again; 0: none is
	trials   uint64    // how many such exchanges there were
	epoch    uint64    // how many failures have counted: what began before the last of them says nothing new
	answers  uint64    // exchanges that were answered

	told   bool      // the log knows that it is down
	toldAt time.Time // when that was last told
}

// A set is one of addresses, by their index.
type set uint64

func (s set) with(a *address) set      { return s | 1<<a.index }
func (s set) contains(a *address) bool { return s&(1<<a.index) != 0 }

// A turn is one exchange at one address: what was known of it when the exchange began.
type turn struct {
	at       *address
	epoch    uint64
	answers  uint64
	trial    uint64 // its number, where it is the one exchange that tries the address again
	reused   bool   // the connection carried an exchange before
	answered bool   // the head of an answer came
}

// choose returns the address for the next exchange that is not in tried: the least busy one of those that are well or due to be
// tried again; else the one that is due first. nil: all are tried.
func (p *Pool) choose(now time.Time, tried set) *address {
	if len(p.addresses) == 1 && tried == 0 {
		return p.addresses[0]
	}
	var best, soonest *address
	for i := range p.addresses {
		a := p.addresses[(p.next+i)%len(p.addresses)]
		switch {
		case tried.contains(a):
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
	if best != nil {
		p.next = (best.index + 1) % len(p.addresses)
	}
	return best
}

// begin begins an exchange at a. The mutex is held.
func (p *Pool) begin(a *address, now time.Time) turn {
	a.busy++
	t := turn{at: a, epoch: a.epoch, answers: a.answers}
	if a.failures > 0 && a.due(now) {
		a.trials++
		a.trial, t.trial = a.trials, a.trials
	}
	return t
}

// due reports whether an address that was left alone is to be tried again, by one exchange at a time. The mutex is held.
func (a *address) due(now time.Time) bool { return a.trial == 0 && !now.Before(a.until) }

// answered tells of the head of an answer: the address is well, unless it has failed since this exchange began.
func (p *Pool) answered(t *turn) {
	if t.answered {
		return
	}
	p.mu.Lock()
	back := p.success(t)
	p.mu.Unlock()
	p.tellBack(t.at, back)
}

// success is answered with the mutex held. It reports whether the log is to be told that the address is back.
func (p *Pool) success(t *turn) (back bool) {
	a := t.at
	t.answered = true
	a.answers++
	if a.failures == 0 || t.epoch != a.epoch {
		return false
	}
	back, a.told = a.told, false
	a.failures, a.trial = 0, 0
	return back
}

// end ends an exchange that does not leave a connection behind. failure is what went wrong before an answer's head; nil: nothing,
// or nothing that the upstream did.
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
	// An exchange that came only because every address was left alone does not make the pause longer: there may be thousands.
	if a.failures == 0 || t.trial != 0 {
		a.failures++
	}
	a.epoch++
	pause := min(firstPause<<min(a.failures-1, 10), maxPause)
	a.until = now.Add(pause)
	kept := a.giveUpKept() // what it kept before it failed is no longer good
	tell := !a.told && (a.toldAt.IsZero() || now.Sub(a.toldAt) >= quietFor)
	if tell {
		a.told, a.toldAt = true, now
	}
	p.mu.Unlock()
	closeAll(kept)
	if tell {
		p.log.Warn("an upstream address is down: others are preferred until it answers again", "upstream", a.String(), "error", failure)
	}
}

func (p *Pool) tellBack(a *address, back bool) {
	if back {
		p.log.Info("an upstream address is back", "upstream", a.String())
	}
}

// A connectError is why a connection could not be made.
type connectError struct{ error }

func (e *connectError) Unwrap() error { return e.error }

// countsAgainst reports whether the failure of an exchange says that its address is not well. The mutex is held.
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

// isAlive reports whether the failure of a kept connection says more than that the other side closed it: it did not answer in time,
// or with nonsense.
func isAlive(err error) bool {
	var timeout net.Error
	var nonsense *wire.Refusal
	return errors.As(err, &timeout) && timeout.Timeout() || errors.As(err, &nonsense)
}

// isOurs reports whether an error says what this side did: that it has none of something left, or that it ended the exchange.
func isOurs(err error) bool {
	return slices.ContainsFunc([]error{context.Canceled, syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL}, func(ours error) bool {
		return errors.Is(err, ours)
	})
}

// pop takes the kept connection that was used last; nil where there is none. The mutex is held.
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

// giveUpKept takes all kept connections. The mutex is held.
func (a *address) giveUpKept() []*Conn {
	all := a.kept
	a.kept = nil
	return all
}

// host is what a certificate of the address must be for.
func (a Address) host() string {
	host, _, _ := net.SplitHostPort(a.Host) // New has checked it
	return host
}

// AddressOf returns the address that an http or https URL names; its path is ignored.
func AddressOf(u *url.URL) Address {
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
