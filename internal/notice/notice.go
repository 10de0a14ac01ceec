// Package notice limits the lines of the log that strangers can cause.
package notice

import (
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// pause is how long there is no second line about one thing.
const pause = time.Minute

// A Limit allows one line a minute about one thing. The zero value is ready to use. It is safe for
// concurrent use.
type Limit struct {
	mu     sync.Mutex
	logged time.Time // the last line
	others int       // since then, without a line
}

// Allow reports whether to log what happens at now, and how often it has happened without a line
// since the last one.
func (l *Limit) Allow(now time.Time) (log bool, others int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.logged.IsZero() && now.Sub(l.logged) < pause {
		l.others++
		return false, 0
	}
	others = l.others
	l.logged, l.others = now, 0
	return true, others
}

const (
	maxPeers  = 8 // in all
	maxPublic = 4 // on the Internet: these are likely to be callers, and leave room for the others
)

// Peers allow one line about each of the first few peers: eight in all, of which four have public
// addresses. The zero value is ready to use. It is safe for concurrent use.
type Peers struct {
	mu sync.Mutex
	// named is replaced and never changed, so that requests read it without the mutex.
	named atomic.Pointer[[]netip.Addr]
}

// Allow reports whether to log what peer does.
func (p *Peers) Allow(peer netip.Addr) bool {
	if !p.hasRoom(peer) {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.hasRoom(peer) { // by now
		return false
	}
	all := append(slices.Clone(p.all()), peer)
	p.named.Store(&all)
	return true
}

// hasRoom reports whether a line about peer is allowed, and was not yet.
func (p *Peers) hasRoom(peer netip.Addr) bool {
	all := p.all()
	if len(all) == maxPeers || slices.Contains(all, peer) {
		return false
	}
	public := 0
	for _, a := range all {
		if !IsNear(a) {
			public++
		}
	}
	return public < maxPublic || IsNear(peer)
}

func (p *Peers) all() []netip.Addr {
	if all := p.named.Load(); all != nil {
		return *all
	}
	return nil
}

// IsNear reports whether an address is one that proxies in front of a server have: of the same
// machine, or of a private network.
func IsNear(a netip.Addr) bool { return a.IsPrivate() || a.IsLoopback() }
