// Package denial gives each refusal an id: an opaque word that holds the facts of the refusal, sealed. Nothing is stored, and
// nothing is revealed to whoever holds the id; every node that knows the secret can open it, for as long as the secret lives.
//
//	denial.go  Sealer: from a decision to an id, and back
//	facts.go   Facts, and the caller that they name
//	encode.go  facts as bytes
//	seal.go    the keys, and what an id is made of
//	recent.go  the ids of this second, for callers that hammer
package denial

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir"
)

// A Sealer makes ids and opens them. It is safe for concurrent use.
type Sealer struct {
	secret  func() []byte
	version func() string
	rand    io.Reader
	own     []byte // seals while there is no shared secret

	mu  sync.Mutex // held to put another epoch in force
	now atomic.Pointer[epoch]
}

// An epoch is as long as neither the secret nor the policy changes.
type epoch struct {
	*sealing
	version string
	recent  recent
}

// leastSecret is the length from which a secret is one, in bytes.
const leastSecret = 32

// New returns a Sealer. secret returns what all nodes share, 32 bytes or more; anything shorter, nil too, means that it is not
// known yet: ids that are made meanwhile can be opened by this Sealer alone. version returns the version of the policy in force;
// nil means none. Both are called for every id and must not block. rand is where salts come from, such as crypto/rand.Reader;
// New errs where it does.
func New(secret func() []byte, version func() string, rand io.Reader) (*Sealer, error) {
	if version == nil {
		version = func() string { return "" }
	}
	s := &Sealer{secret: secret, version: version, rand: rand, own: make([]byte, leastSecret)}
	if _, err := io.ReadFull(rand, s.own); err != nil {
		return nil, fmt.Errorf("new sealer: read %d random bytes: %w", leastSecret, err)
	}
	if _, err := s.epoch(); err != nil {
		return nil, fmt.Errorf("new sealer: %w", err)
	}
	return s, nil
}

// shared returns the secret of all nodes, nil while it is not known.
func (s *Sealer) shared() []byte {
	if secret := s.secret(); len(secret) >= leastSecret {
		return secret
	}
	return nil
}

// epoch returns the present one.
func (s *Sealer) epoch() (*epoch, error) {
	secret, version := s.shared(), s.version()
	if e := s.now.Load(); e != nil && e.version == version && bytes.Equal(e.secret, secret) {
		return e, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	next := &epoch{version: version, recent: newRecent()}
	switch e := s.now.Load(); {
	case e == nil || !bytes.Equal(e.secret, secret):
		var err error
		if next.sealing, err = s.newSealing(secret); err != nil {
			return nil, err
		}
	case e.version == version:
		return e, nil // somebody else has seen it too
	default:
		next.sealing = e.sealing
	}
	s.now.Store(next)
	return next, nil
}

// ID returns the id of a refusal: of its binding window, and of whoever the windows of that limiter count. Within one second one
// caller's refusals by the same window and count have the same id. scratch is the decision's; nil gives each refusal an id of
// its own. It is empty where d has no window, or no salt could be read for a secret that has changed. Nothing of the arguments
// is kept but the window.
func (s *Sealer) ID(d *weir.Decision, caller weir.Keys, scratch *weir.Scratch) string {
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

func (e *epoch) id(d *weir.Decision, binding *weir.Standing, caller weir.Keys) string {
	f := Facts{
		Limiter: binding.Limiter.Name,
		Window:  binding.Window.String(),
		Limit:   binding.Limit,
		Count:   binding.Count,
		Reset:   binding.Reset,
		At:      d.Now,
		Policy:  e.version,
		Callers: weir.Keep(binding.Limiter, caller),
	}
	return e.seal(f.encode())
}

// Open returns the facts of the refusal that an id was given for. An error says why it cannot: what it is given is no id, or one
// that was cut or altered, or that another secret sealed, or a process without a shared secret, or a later version of Weir.
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
		if secret, refusal = s.shared(), errRefused; secret == nil {
			return Facts{}, errNoSecret
		}
	}
	plain, err := unseal(secret, raw)
	if err != nil {
		return Facts{}, refusal
	}
	return parseFacts(plain)
}

// brief is as much of an id as an error shows.
func brief(id string) string {
	const most = 24
	if len(id) > most {
		return fmt.Sprintf("%q… (%d characters)", id[:most], len(id))
	}
	return fmt.Sprintf("%q", id)
}
