package identity_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/identity"
)

// systemVerifier returns a resolver on the system's clock.
func systemVerifier(t *testing.T) *identity.Resolver {
	t.Helper()
	s := must(identity.NewSessions(identity.SessionsOptions{Keys: allKeys()}))
	return resolver(t, identity.Options{Sessions: s})
}

func hasSession(r *identity.Resolver, token string, arrived time.Time) bool {
	c := caller(r, bearing(token))
	if !arrived.IsZero() {
		c.Arrived(arrived)
	}
	_, err := c.Session()
	return err == nil
}

// The wall clock is not read for every request, and what was read is not used for long.
func TestASessionInTheCacheExpiresInItsSecondOnTheSystemsClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := systemVerifier(t)
		token := hs256(map[string]any{"sid": "s", "exp": time.Now().Add(time.Minute).Unix()})
		for _, step := range []struct {
			wait    time.Duration
			holds   bool
			because string
		}{
			{0, true, "it is new"},
			{time.Minute - time.Millisecond, true, "it has a millisecond left"},
			{time.Millisecond - 1, true, "it has a nanosecond left"},
			{1, false, "it has expired this moment"},
			{time.Hour, false, "it has expired"},
		} {
			time.Sleep(step.wait)
			if got := hasSession(r, token, time.Time{}); got != step.holds {
				t.Errorf("after %v more the session holds: %t, want %t: %s", step.wait, got, step.holds, step.because)
			}
		}
	})
}

func TestACredentialIsJudgedAtTheTimeAtWhichItsRequestArrived(t *testing.T) {
	r := systemVerifier(t)
	expires := time.Now().Add(time.Hour).Truncate(time.Second)
	token := hs256(map[string]any{"sid": "s", "exp": expires.Unix()})
	for _, c := range []struct {
		arrived time.Time
		holds   bool
	}{
		{expires.Add(-1), true},
		{expires, false},
		{expires.Add(-1), true}, // from the cache
		{time.Time{}, true},     // now
	} {
		if got := hasSession(r, token, c.arrived); got != c.holds {
			t.Errorf("a request that arrived at %v has a session: %t, want %t", c.arrived, got, c.holds)
		}
	}
	fixed, at := verifier(t, identity.SessionsOptions{})
	token = hs256(map[string]any{"sid": "s", "exp": at.Now().Add(time.Hour).Unix()})
	if !hasSession(fixed, token, at.Now().Add(2*time.Hour)) {
		t.Error("the time of arrival counts, although Options.Now is set")
	}
}
