package identity_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir/identity"
)

// A tokenStore is Tokens in memory that counts lookups, and fails on demand.
type tokenStore struct {
	mu     sync.Mutex
	tokens map[string]identity.StoredToken
	err    error
	asked  atomic.Int64
}

func (s *tokenStore) Lookup(id string) (identity.StoredToken, error) {
	s.asked.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return identity.StoredToken{}, s.err
	}
	t, ok := s.tokens[id]
	if !ok {
		return t, identity.ErrUnknownToken
	}
	return t, nil
}

// mint creates and stores a token.
func (s *tokenStore) mint(workspace string) (token, id string) {
	token, id, hash, err := identity.NewToken(rand.Reader)
	if err != nil {
		panic(err)
	}
	s.set(identity.StoredToken{ID: id, Workspace: workspace, Hash: hash})
	return token, id
}

func (s *tokenStore) set(t identity.StoredToken) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tokens == nil {
		s.tokens = map[string]identity.StoredToken{}
	}
	s.tokens[t.ID] = t
}

func (s *tokenStore) change(id string, change func(*identity.StoredToken)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tokens[id]
	change(&t)
	s.tokens[id] = t
}

func revoke(t *identity.StoredToken) { t.Revoked = true }

func (s *tokenStore) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func withTokens(t testing.TB) (*identity.Resolver, *tokenStore, *clock) {
	s, c := new(tokenStore), newClock()
	return resolver(t, identity.Options{Tokens: s, Now: c.Now}), s, c
}

func tokenError(r *identity.Resolver, token string) error {
	_, err := caller(r, bearing(token)).Token()
	return err
}

func TestATokenIsCountedByItsPublicID(t *testing.T) {
	r, s, _ := withTokens(t)
	token, id := s.mint("acme")
	got, err := caller(r, bearing(token)).Token()
	if err != nil || got != (identity.TokenClaims{ID: id, Workspace: "acme"}) {
		t.Errorf("%+v, %v", got, err)
	}
	if k, ok := key(caller(r, bearing(token)), identity.Token); !ok || k != id {
		t.Errorf("counted as %q", k)
	}
}

// The form, the id, the hash (D15).
func TestAMintedTokenCanBeParsed(t *testing.T) {
	for i := range 256 {
		token, id, hash, err := identity.NewToken(bytes.NewReader(bytes.Repeat([]byte{byte(i)}, 27)))
		if err != nil {
			t.Fatal(err)
		}
		gotID, gotHash, err := identity.ParseToken(token)
		if gotID != id || gotHash != hash || err != nil || !strings.HasPrefix(token, "wpt_"+id+"_") || len(id) != 10 {
			t.Fatalf("%q (%q) reads as %q, %v", token, id, gotID, err)
		}
	}
	if _, _, _, err := identity.NewToken(strings.NewReader("26 bytes are one too few..")); err == nil {
		t.Error("a token from too little randomness")
	}
}

// The checksum detects typing errors (D15).
func TestEveryMistypedCharacterIsRefusedWithoutALookUp(t *testing.T) {
	r, s, _ := withTokens(t)
	token, _ := s.mint("")
	for i := range len(token) {
		for c := range 256 {
			if byte(c) == token[i] {
				continue
			}
			other := token[:i] + string([]byte{byte(c)}) + token[i+1:]
			if _, _, err := identity.ParseToken(other); err == nil {
				t.Errorf("%q passes for %q", other, token)
			}
		}
	}
	for i := range len(token) - 1 { // two neighbours swapped
		other := token[:i] + string([]byte{token[i+1], token[i]}) + token[i+2:]
		if _, _, err := identity.ParseToken(other); err == nil && other != token {
			t.Errorf("%q passes for %q", other, token)
		}
	}
	for _, other := range []string{"", "wpt_", token[:len(token)-1], token + "a", strings.ToUpper(token), "Wpt_" + token[4:]} {
		if err := tokenError(r, other); err == nil {
			t.Errorf("%q is a token", other)
		}
	}
	if s.asked.Load() != 0 {
		t.Errorf("%d look-ups of mistyped tokens", s.asked.Load())
	}
}

// A token's id alone is not sufficient (D15).
func TestATokenNeedsAKnownIDAndItsSecret(t *testing.T) {
	r, s, _ := withTokens(t)
	token, id := s.mint("acme")
	unknown, _, _, _ := identity.NewToken(rand.Reader)
	if err := tokenError(r, unknown); err == nil {
		t.Error("an unknown id is accepted")
	}
	s.change(id, func(t *identity.StoredToken) { t.Hash[31] ^= 1 }) // now it has another secret
	if err := tokenError(r, token); err == nil {
		t.Error("a wrong secret is accepted")
	}
	s.change(id, func(t *identity.StoredToken) { t.Hash[31] ^= 1; t.ID = "other" })
	if err := tokenError(r, token); err == nil {
		t.Error("another token's record is accepted")
	}
	s.change(id, func(t *identity.StoredToken) { t.ID = id; t.Revoked = true })
	if err := tokenError(r, token); err == nil {
		t.Error("a revoked token is accepted")
	}
}

func TestARevokedTokenStopsWithinASecond(t *testing.T) {
	for _, every := range []time.Duration{10 * time.Millisecond, 399 * time.Millisecond, 600 * time.Millisecond, 2 * time.Second} {
		r, s, clock := withTokens(t)
		token, id := s.mint("")
		at := time.Duration(0)
		for ; at < 5*time.Second; at += every {
			clock.set(at)
			if err := tokenError(r, token); err != nil {
				t.Fatal(err)
			}
		}
		s.change(id, revoke)
		// The last accepted request.
		last := at - every
		// A TokenFile's answer may be that old itself.
		clock.set(last + time.Second - 250*time.Millisecond - 1)
		if err := tokenError(r, token); err == nil {
			t.Errorf("asked every %v: accepted almost a second later", every)
		}
		if err := tokenError(r, token); err == nil {
			t.Errorf("asked every %v: accepted again", every)
		}
	}
}

func TestATokenInUseIsLookedUpAboutTwiceASecond(t *testing.T) {
	r, s, clock := withTokens(t)
	token, _ := s.mint("")
	for ms := range 10_000 {
		clock.set(time.Duration(ms) * time.Millisecond)
		if err := tokenError(r, token); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.asked.Load(); n < 20 || n > 26 {
		t.Errorf("%d look-ups in ten seconds", n)
	}
}

// Requests share a lookup, even if some read the clock slightly earlier than the
// one that did it (D15).
func TestConcurrentRequestsShareOneLookup(t *testing.T) {
	for _, after := range []time.Duration{500 * time.Millisecond, 5 * time.Second} {
		s := new(tokenStore)
		token, _ := s.mint("")
		var ticks atomic.Int64
		// Each is a microsecond before the last.
		now := func() time.Time { return noon.Add(time.Duration(ticks.Add(-1000))) }
		r := resolver(t, identity.Options{Tokens: s, Now: now})
		if err := tokenError(r, token); err != nil {
			t.Fatal(err)
		}
		ticks.Add(int64(after))
		var all sync.WaitGroup
		for range 200 {
			all.Go(func() {
				if err := tokenError(r, token); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := s.asked.Load(); n != 2 {
			t.Errorf("after %v: %d look-ups for 200 requests at once, want one", after, n-1)
		}
	}
}

// A hookedStore calls its hook during a lookup.
type hookedStore struct {
	*tokenStore
	hook func()
}

func (s *hookedStore) Lookup(id string) (identity.StoredToken, error) {
	if h := s.hook; h != nil {
		s.hook = nil
		h()
	}
	return s.tokenStore.Lookup(id)
}

// A slow store neither delays requests nor extends a revoked token (D15).
func TestDuringALookupOthersUseTheOldAnswerBriefly(t *testing.T) {
	s, clock := &hookedStore{tokenStore: new(tokenStore)}, newClock()
	r := resolver(t, identity.Options{Tokens: s, Now: clock.Now})
	token, id := s.mint("")
	if err := tokenError(r, token); err != nil {
		t.Fatal(err)
	}
	late := make(chan error, 1)
	s.hook = func() {
		clock.set(700*time.Millisecond - 1)
		if err := tokenError(r, token); err != nil { // or waits for itself
			t.Errorf("just before: %v", err)
		}
		clock.set(700 * time.Millisecond)
		go func() { late <- tokenError(r, token) }()
		for range 10_000 {
			runtime.Gosched() // time to continue, if it would
		}
		s.change(id, revoke)
	}
	clock.set(400 * time.Millisecond)
	if err := tokenError(r, token); err == nil {
		t.Error("the request that looked the token up is accepted though it is revoked")
	}
	if err := <-late; err == nil {
		t.Error("a late request was accepted without a lookup")
	}
}

func TestAClockSetBackCausesALookup(t *testing.T) {
	r, s, clock := withTokens(t)
	token, id := s.mint("")
	clock.set(time.Hour)
	if err := tokenError(r, token); err != nil {
		t.Fatal(err)
	}
	s.change(id, revoke)
	clock.set(0)
	if err := tokenError(r, token); err == nil {
		t.Error("a revoked token is accepted for as long as the clock was set back")
	}
}

// If a lookup fails, the token is not accepted (D15).
func TestATokenThatCannotBeLookedUpIsNotAccepted(t *testing.T) {
	r, s, clock := withTokens(t)
	token, _ := s.mint("")
	if err := tokenError(r, token); err != nil {
		t.Fatal(err)
	}
	down := errors.New("disk on fire")
	s.fail(down)
	clock.set(time.Second)
	before := s.asked.Load()
	for range 10 {
		if err := tokenError(r, token); !errors.Is(err, down) {
			t.Errorf("the store is down: %v", err)
		}
	}
	if n := s.asked.Load() - before; n != 1 {
		t.Errorf("a failing store gets %d concurrent lookups", n)
	}
	unknown, _ := s.mint("")
	if err := tokenError(r, unknown); !errors.Is(err, down) {
		t.Errorf("the store is down: %v", err)
	}
	s.fail(nil)
	clock.set(1400 * time.Millisecond)
	if err := tokenError(r, token); err != nil {
		t.Errorf("the store is back: %v", err)
	}
}

func TestATokensWorkspaceMayChange(t *testing.T) {
	r, s, clock := withTokens(t)
	token, id := s.mint("acme")
	if err := tokenError(r, token); err != nil {
		t.Fatal(err)
	}
	s.change(id, func(t *identity.StoredToken) { t.Workspace = "other" })
	clock.set(time.Second)
	if got, err := caller(r, bearing(token)).Token(); got.Workspace != "other" {
		t.Errorf("the workspace is %q, %v", got.Workspace, err)
	}
}
