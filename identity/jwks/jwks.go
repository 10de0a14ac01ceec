// Package jwks keeps the public keys of a JSON Web Key Set (RFC 7517) at hand, for identity.SessionsOptions.Lookup.
//
// One goroutine fetches, so one fetch runs at a time, and it fetches at most once a minute, whatever key ids are asked for.
// The last good keys stay in force while the endpoint fails or answers something else. Keys are read by MicahParks/jwkset.
package jwks

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/MicahParks/jwkset"

	"github.com/weirlimit/weir/identity"
)

const (
	maxSet  = 1 << 20 // bytes of an answer
	maxKeys = 256
	maxHops = 3     // redirections
	mostRSA = 16384 // more would make every signature slow to check
)

// Options are a Set's settings; the zero value is useful.
type Options struct {
	Client  *http.Client  // nil: one of its own. Without a CheckRedirect it follows three, to URLs that New takes too
	Every   time.Duration // how old keys may grow before they are fetched again; 0 means 15 minutes, at least Between
	Between time.Duration // the least time between two fetches; 0 means a minute, which is also the least
	Timeout time.Duration // of one fetch; 0 means 5 seconds
	Report  func(error)   // told of each fetch that failed, and with nil of the first good one after; nil tells nobody
}

// A Set is a key set that follows its endpoint. It is safe for concurrent use.
type Set struct {
	url     string
	options Options
	keys    atomic.Pointer[[]key]
	wanted  chan struct{} // somebody misses a key
	done    chan struct{}

	mu      sync.Mutex
	fetched chan struct{} // closed when the fetch under way, or the next one, has ended
	next    time.Time     // when the next fetch may start
}

// A key is one usable public key.
type key struct {
	kid, alg string
	public   crypto.PublicKey
}

// New returns a Set that begins to fetch from rawURL at once and goes on until ctx ends; Wait tells when it has stopped. The
// endpoint need not be reachable yet. The URL is https, or http to a loopback address.
func New(ctx context.Context, rawURL string, o Options) (*Set, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, fmt.Errorf("key set: %w", err)
	}
	if !isTrustworthy(u) || u.User != nil {
		return nil, fmt.Errorf("key set %q: an https URL is needed (http only to a loopback address), without user and password", u.Redacted())
	}
	client := http.Client{}
	if o.Client != nil {
		client = *o.Client
	}
	if client.CheckRedirect == nil {
		client.CheckRedirect = checkRedirect
	}
	o.Client = &client
	o.Between = max(orElse(o.Between, time.Minute), time.Minute)
	o.Every = max(orElse(o.Every, 15*time.Minute), o.Between)
	o.Timeout = orElse(o.Timeout, 5*time.Second)
	if o.Report == nil {
		o.Report = func(error) {}
	}
	s := &Set{
		url:     rawURL,
		options: o,
		wanted:  make(chan struct{}, 1),
		done:    make(chan struct{}),
		fetched: make(chan struct{}),
	}
	s.keys.Store(new([]key))
	go s.run(ctx)
	return s, nil
}

func orElse(d, other time.Duration) time.Duration {
	if d == 0 {
		return other
	}
	return d
}

// isTrustworthy reports whether nobody on the way can have changed what comes from u.
func isTrustworthy(u *url.URL) bool {
	if u.Scheme == "http" {
		a, err := netip.ParseAddr(u.Hostname())
		return u.Hostname() == "localhost" || err == nil && a.IsLoopback()
	}
	return u.Scheme == "https" && u.Hostname() != ""
}

func checkRedirect(req *http.Request, via []*http.Request) error {
	if len(via) > maxHops {
		return fmt.Errorf("over %d redirections", maxHops)
	}
	if !isTrustworthy(req.URL) || via[0].URL.Scheme == "https" && req.URL.Scheme != "https" {
		return fmt.Errorf("redirected to %s: https is needed", req.URL.Redacted())
	}
	return nil
}

// Wait returns when the Set has stopped fetching, after its context ended.
func (s *Set) Wait() { <-s.done }

// ErrUnknownKey says that the set has no key with that id and algorithm.
var ErrUnknownKey = errors.New("the key set has no such key")

// Lookup returns the key with that id for alg (RS256, ES256 or EdDSA). A token without a kid gets a key only where the set
// has one alone for alg. A key that is missing is fetched for, where a fetch is due: the caller waits for it, at most the
// fetch's time-out.
func (s *Set) Lookup(kid, alg string) (crypto.PublicKey, error) {
	if k := find(*s.keys.Load(), kid, alg); k != nil {
		return k, nil
	}
	if ended := s.want(); ended != nil {
		select {
		case <-ended:
		case <-s.done:
		}
		if k := find(*s.keys.Load(), kid, alg); k != nil {
			return k, nil
		}
	}
	return nil, fmt.Errorf("%w: kid %.64q for %.16q", ErrUnknownKey, kid, alg)
}

func find(keys []key, kid, alg string) crypto.PublicKey {
	var only crypto.PublicKey
	for _, k := range keys {
		if k.alg != alg {
			continue
		}
		if kid != "" && k.kid == kid {
			return k.public
		}
		if kid == "" {
			if only != nil {
				return nil
			}
			only = k.public
		}
	}
	return only
}

// want asks for a fetch and returns what is closed when it has ended; nil where none is due.
func (s *Set) want() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Now().Before(s.next) {
		return nil
	}
	select {
	case s.wanted <- struct{}{}:
	default: // asked already
	}
	return s.fetched
}

// run fetches at once, whenever the keys have grown old, and when a key is missed.
func (s *Set) run(ctx context.Context) {
	defer close(s.done)
	failing := false
	for {
		err := s.fetch(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil || failing {
			s.options.Report(err)
		}
		failing = err != nil
		s.mu.Lock()
		s.next = time.Now().Add(s.options.Between)
		close(s.fetched)
		s.fetched = make(chan struct{})
		select { // asked for while it was under way
		case <-s.wanted:
		default:
		}
		s.mu.Unlock()
		wait := s.options.Every
		if failing {
			wait = s.options.Between
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		case <-s.wanted:
			timer.Stop()
		}
	}
}

// fetch replaces the keys, unless the answer is not a set with a usable key.
func (s *Set) fetch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		return fmt.Errorf("fetch the key set: %w", err)
	}
	req.Header.Set("Accept", "application/jwk-set+json, application/json")
	resp, err := s.options.Client.Do(req)
	if err != nil {
		return fmt.Errorf("fetch the key set: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("fetch the key set: %s answered %s", req.URL.Redacted(), resp.Status)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxSet+1))
	if err != nil {
		return fmt.Errorf("fetch the key set: %w", err)
	}
	keys, err := parse(body)
	if err != nil {
		return fmt.Errorf("fetch the key set: %s: %w", req.URL.Redacted(), err)
	}
	s.keys.Store(&keys)
	return nil
}

// parse reads a set and keeps the keys that verify signatures under one of our algorithms. A set without any is an error:
// it would lock everybody out.
func parse(body []byte) ([]key, error) {
	if len(body) > maxSet {
		return nil, fmt.Errorf("over %d bytes: no key set is that large", maxSet)
	}
	var set struct{ Keys []json.RawMessage }
	if err := json.Unmarshal(body, &set); err != nil {
		return nil, fmt.Errorf("the answer is no key set: %w", err)
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("%d keys: at most %d are read", len(set.Keys), maxKeys)
	}
	var keys []key
	for _, text := range set.Keys {
		var m jwkset.JWKMarshal
		if json.Unmarshal(text, &m) != nil {
			continue // one odd key must not hide the others
		}
		if k, ok := usable(m); ok {
			keys = append(keys, k)
		}
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("none of its %d keys verifies RS256, ES256 or EdDSA signatures", len(set.Keys))
	}
	return keys, nil
}

// usable reads one key. Symmetric keys, private ones and keys for another use or algorithm are none of ours.
func usable(m jwkset.JWKMarshal) (key, bool) {
	if m.USE != "" && m.USE != jwkset.UseSig || m.K != "" || m.D != "" {
		return key{}, false
	}
	if len(m.KEYOPS) > 0 && !slices.Contains(m.KEYOPS, jwkset.KeyOpsVerify) {
		return key{}, false
	}
	m.X5C, m.X5U, m.X5T, m.X5TS256 = nil, "", "", "" // certificates are not looked at: the endpoint is what is trusted
	jwk, err := jwkset.NewJWKFromMarshal(m, jwkset.JWKMarshalOptions{}, jwkset.JWKValidateOptions{})
	if err != nil {
		return key{}, false
	}
	known, err := identity.NewPublicKey("jwk", jwk.Key()) // which algorithm a key is for is said in one place
	if err != nil {
		return key{}, false
	}
	k := key{kid: m.KID, alg: known.Algorithm(), public: jwk.Key()}
	switch public := k.public.(type) {
	case *rsa.PublicKey:
		if public.N.BitLen() > mostRSA || public.E < 3 {
			return key{}, false
		}
	case *ecdsa.PublicKey:
		if _, err := public.ECDH(); err != nil { // it checks that the point is on its curve
			return key{}, false
		}
	}
	if m.ALG != "" && string(m.ALG) != k.alg {
		return key{}, false
	}
	return k, true
}
