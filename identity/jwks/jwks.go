// Package jwks fetches the public keys of a JSON Web Key Set (RFC 7517) and caches them, for
// identity.SessionsOptions.Lookup.
//
// One goroutine fetches, so one fetch runs at a time. It fetches at most once a minute, however
// many key ids are asked for. The last good keys stay in use while the endpoint fails or returns
// something else. Keys are parsed by MicahParks/jwkset.
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
	maxSet  = 1 << 20 // bytes of a response
	maxKeys = 256
	maxHops = 3     // redirections
	maxRSA  = 16384 // bits; a longer key would make every signature slow to check
)

// Options are a Set's settings; the zero value is useful.
type Options struct {
	// Client sends the requests; nil means a client of the Set's own. If it has no CheckRedirect,
	// it follows three redirections, to URLs that New would accept.
	Client *http.Client

	// Every is the age at which keys are fetched again. 0 means 15 minutes; the minimum is Between.
	Every time.Duration

	// Between is the minimum time between two fetches. 0 means a minute, which is also its minimum.
	Between time.Duration

	// Timeout bounds one fetch; 0 means 5 seconds.
	Timeout time.Duration

	// Report is called with the error of each fetch that fails, and with nil when the next one
	// succeeds. It may be nil.
	Report func(error)
}

// A Set is a cached key set. It is safe for concurrent use.
type Set struct {
	url     string
	options Options
	keys    atomic.Pointer[[]key]
	wanted  chan struct{} // a look-up misses a key
	done    chan struct{}

	mu      sync.Mutex
	fetched chan struct{} // closed when the current fetch, or the next one, has ended
	next    time.Time     // when the next fetch may start
}

// A key is one usable public key.
type key struct {
	kid, alg string
	public   crypto.PublicKey
}

// New returns a Set that fetches from rawURL at once, and then again until ctx ends; Wait waits for
// that. The endpoint need not be reachable yet. The URL is https, or http to a loopback address.
func New(ctx context.Context, rawURL string, o Options) (*Set, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, fmt.Errorf("key set: %w", err)
	}
	if err := CheckURL(u); err != nil {
		return nil, err
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

// isTrustworthy reports whether a response from u cannot have been changed on the way.
// CheckURL returns why no key set is fetched from a URL; nil if one is. It connects nowhere.
func CheckURL(u *url.URL) error {
	if !isTrustworthy(u) || u.User != nil {
		return fmt.Errorf("key set %q: an https URL is needed (http only to a loopback address), without user and password", u.Redacted())
	}
	return nil
}

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

// Wait blocks until the Set has stopped fetching, which it does when its context has ended.
func (s *Set) Wait() { <-s.done }

// ErrUnknownKey means that the set has no key with that id and algorithm.
var ErrUnknownKey = errors.New("the key set has no such key")

// Lookup returns the key with that id for alg (RS256, ES256 or EdDSA). For a token without a kid it
// returns the set's key for alg if it has exactly one. If the key is missing and a fetch is due,
// Lookup waits for the fetch, at most Options.Timeout.
func (s *Set) Lookup(kid, alg string) (crypto.PublicKey, error) {
	if k := find(*s.keys.Load(), kid, alg); k != nil {
		return k, nil
	}
	if ended := s.requestFetch(); ended != nil {
		select {
		case <-ended:
		case <-s.done:
		}
	}
	// Also if no fetch is due: one may have ended since the first look.
	if k := find(*s.keys.Load(), kid, alg); k != nil {
		return k, nil
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

// requestFetch requests a fetch and returns a channel that is closed when it has ended. It returns
// nil if no fetch is due.
func (s *Set) requestFetch() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Now().Before(s.next) {
		return nil
	}
	select {
	case s.wanted <- struct{}{}:
	default: // requested already
	}
	return s.fetched
}

// run fetches at once, whenever the keys are too old, and when a key is missing.
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
		select { // drop a request made during the fetch
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

// fetch replaces the keys, unless the response is not a set with a usable key.
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

// parse returns the keys of a set that verify signatures under one of our algorithms. A set without
// such a key is an error, since it would reject every session.
func parse(body []byte) ([]key, error) {
	if len(body) > maxSet {
		return nil, fmt.Errorf("over %d bytes: no key set is that large", maxSet)
	}
	var set struct{ Keys []json.RawMessage }
	if err := json.Unmarshal(body, &set); err != nil {
		return nil, fmt.Errorf("the answer is not a key set: %w", err)
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("%d keys: at most %d are read", len(set.Keys), maxKeys)
	}
	var keys []key
	for _, text := range set.Keys {
		var m jwkset.JWKMarshal
		if json.Unmarshal(text, &m) != nil {
			continue // one unknown key must not hide the others
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

// usable converts one key. ok is false for symmetric keys, private keys, and keys for another use
// or algorithm.
func usable(m jwkset.JWKMarshal) (k key, ok bool) {
	if m.USE != "" && m.USE != jwkset.UseSig || m.K != "" || m.D != "" {
		return key{}, false
	}
	if len(m.KEYOPS) > 0 && !slices.Contains(m.KEYOPS, jwkset.KeyOpsVerify) {
		return key{}, false
	}
	// The endpoint is trusted, so certificates are ignored.
	m.X5C, m.X5U, m.X5T, m.X5TS256 = nil, "", "", ""
	jwk, err := jwkset.NewJWKFromMarshal(m, jwkset.JWKMarshalOptions{}, jwkset.JWKValidateOptions{})
	if err != nil {
		return key{}, false
	}
	// NewPublicKey is the one place that decides which algorithm a key is for.
	known, err := identity.NewPublicKey("jwk", jwk.Key())
	if err != nil {
		return key{}, false
	}
	k = key{kid: m.KID, alg: known.Algorithm(), public: jwk.Key()}
	switch public := k.public.(type) {
	case *rsa.PublicKey:
		if public.N.BitLen() > maxRSA || public.E < 3 {
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
