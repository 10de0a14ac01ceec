// Package denial gives each refusal an id, which holds the facts of the refusal in encrypted form.
// Nothing is stored, and an id reveals nothing to a client. Every node that has the secret can
// open it, for as long as the secret is in use.
//
//	denial.go  Sealer: from a decision to an id, and back
//	facts.go   Facts, and the caller that they describe
//	encode.go  facts as bytes
//	seal.go    keys, and the layout of an id
//	recent.go  a cache of recent ids, for clients that retry in a loop
package denial

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

// Label is the label by which the secret of ids is derived from that of a shared store. All that
// count in the store derive the same, so each can open the ids of the others.
const Label = "denial ids"

// A Sealer makes ids and opens them. It is safe for concurrent use.
type Sealer struct {
	secret  func() []byte
	version func() string
	rand    io.Reader
	now     func() time.Time
	own     []byte // the secret of this process, used while there is no shared one

	mu      sync.Mutex // held to replace current
	current atomic.Pointer[epoch]
}

// An epoch is the time in which neither the secret nor the policy changes.
type epoch struct {
	*sealing
	version string
	recent  recent
}

// minSecret is the minSealed secret that is accepted, in bytes.
const minSecret = 32

// New returns a Sealer. secret returns the secret that all nodes share, of at least 32 bytes. If it
// returns fewer, the secret is not known yet, and only this Sealer can open the ids it makes
// meanwhile. version returns the version of the policy in force; nil means none. Both functions are
// called for every id, from any goroutine, and must not block. rand is the source of salts, such as
// crypto/rand.Reader. now is the clock for the ids of denied requests, which no store has counted;
// nil means time.Now. New returns the errors of rand.
func New(secret func() []byte, version func() string, rand io.Reader, now func() time.Time) (*Sealer, error) {
	if version == nil {
		version = func() string { return "" }
	}
	if now == nil {
		now = time.Now
	}
	s := &Sealer{secret: secret, version: version, rand: rand, now: now, own: make([]byte, minSecret)}
	if _, err := io.ReadFull(rand, s.own); err != nil {
		return nil, fmt.Errorf("new sealer: read %d random bytes: %w", minSecret, err)
	}
	if _, err := s.epoch(); err != nil {
		return nil, fmt.Errorf("new sealer: %w", err)
	}
	return s, nil
}

// shared returns the shared secret, or nil if it is not known yet.
func (s *Sealer) shared() []byte {
	if secret := s.secret(); len(secret) >= minSecret {
		return secret
	}
	return nil
}

// epoch returns the current epoch, and starts a new one if the secret or the policy has changed.
func (s *Sealer) epoch() (*epoch, error) {
	secret, version := s.shared(), s.version()
	if e := s.current.Load(); e != nil && e.version == version && bytes.Equal(e.secret, secret) {
		return e, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	next := &epoch{version: version, recent: newRecent()}
	switch e := s.current.Load(); {
	case e == nil || !bytes.Equal(e.secret, secret):
		var err error
		if next.sealing, err = s.newSealing(secret); err != nil {
			return nil, err
		}
	case e.version == version:
		return e, nil // another goroutine was faster
	default:
		next.sealing = e.sealing
	}
	s.current.Store(next)
	return next, nil
}

// ID returns the id of a refusal. It holds the binding window, and the keys by which that window's
// limiter counts the caller. Refusals of one caller by the same window, with the same count and
// within the same second, share an id. scratch is the one of the decision; if it is nil every
// refusal gets its own id. ID returns an empty string if d has no window, or if no salt could be
// read after the secret changed. It keeps no argument, except for a pointer to the window.
//
// The id of a denied request holds the limiter that denies the caller, and what it knows the caller
// by (weir.SaveDenied). One caller's denials within a second share an id.
func (s *Sealer) ID(d *weir.Decision, caller weir.Keys, scratch *weir.Scratch) string {
	if d.Outcome == weir.Denied {
		return s.deniedID(d.DeniedBy, caller)
	}
	binding := d.Binding()
	if binding.Window == nil {
		return ""
	}
	e, err := s.epoch()
	if err != nil {
		return ""
	}
	if scratch == nil {
		return e.id(d, &binding, caller)
	}
	q := question{decision: d, binding: &binding, scratch: scratch}
	id, slot, seen := e.recent.find(&q)
	if id != "" {
		return id
	}
	return e.recent.keep(slot, seen, &q, e.id(d, &binding, caller))
}

func (s *Sealer) deniedID(by *weir.Limiter, caller weir.Keys) string {
	e, err := s.epoch()
	if err != nil {
		return ""
	}
	f := Facts{Limiter: by.Name, At: s.now().Unix(), Policy: e.version, Denied: true, Callers: weir.SaveDenied(by, caller)}
	q := question{denied: &f}
	id, slot, seen := e.recent.find(&q)
	if id != "" {
		return id
	}
	return e.recent.keep(slot, seen, &q, e.seal(f.encode()))
}

func (e *epoch) id(d *weir.Decision, binding *weir.Standing, caller weir.Keys) string {
	f := Facts{
		Limiter:  binding.Limiter.Name,
		Window:   binding.Window.String(),
		Limit:    binding.Limit,
		Count:    binding.Count,
		Reset:    binding.Reset,
		At:       d.Now,
		Policy:   e.version,
		Penalty:  binding.Penalty,
		InFlight: binding.InFlight,
		Callers:  weir.SaveKeys(binding.Limiter, caller),
	}
	if f.InFlight {
		f.Reset = 0 // slots have none
	}
	return e.seal(f.encode())
}

// Open returns the facts of the refusal with an id. It returns an error that describes the reason
// if id is not an id, was truncated or altered, was made with another secret, by a process that had
// no shared secret, or by a later version of Weir.
func (s *Sealer) Open(id string) (Facts, error) {
	f, err := s.open(id)
	if err != nil {
		return Facts{}, fmt.Errorf("open denial id %s: %w", brief(id), err)
	}
	return f, nil
}

func (s *Sealer) open(id string) (Facts, error) {
	raw, err := parse(id)
	if err != nil {
		return Facts{}, err
	}
	secret, refusal := s.own, errPrivate
	if raw[0] == versionShared {
		if secret, refusal = s.shared(), errUnsealed; secret == nil {
			return Facts{}, errNoSecret
		}
	}
	plain, err := unseal(secret, raw)
	if err != nil {
		return Facts{}, refusal
	}
	return parseFacts(plain)
}

// brief returns the part of an id that errors show.
func brief(id string) string {
	const limit = 24
	if len(id) > limit {
		return fmt.Sprintf("%q… (%d characters)", id[:limit], len(id))
	}
	return fmt.Sprintf("%q", id)
}
