package redis_test

import (
	"bytes"
	"testing"

	"github.com/weirlimit/weir/e2e/redistest"
	"github.com/weirlimit/weir/redisstore"
)

// Every process derives the same bytes for a label, from a generated secret as from
// a given one.
func TestAllProcessesDeriveTheSame(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	o := at(server)
	given := redisstore.Options{Addresses: o.Addresses, Prefix: "given", Secret: bytes.Repeat([]byte("g"), 32)}
	elsewhere := redisstore.Options{Addresses: o.Addresses, Prefix: "elsewhere"}
	seen := map[string]string{}
	for name, o := range map[string]redisstore.Options{"made up": o, "given": given, "made up elsewhere": elsewhere} {
		one, other := open(t, o), open(t, o)
		for _, label := range []string{"a", "b", ""} {
			first, second := known(t, one, label), known(t, other, label)
			if len(first) != 32 || !bytes.Equal(first, second) {
				t.Errorf("%s, label %q: one process derives %x, another %x", name, label, first, second)
			}
			if before, taken := seen[string(first)]; taken {
				t.Errorf("%s, label %q: the same as %s", name, label, before)
			}
			seen[string(first)] = name + " " + label
		}
	}
}

// known returns what a process derives. On a busy machine it opens before it has reached its
// server.
func known(t *testing.T, s *redisstore.Store, label string) []byte {
	t.Helper()
	secret := s.Secret(label)
	eventually(t, "the secret is known", func() bool { return secret() != nil })
	return secret()
}

// A generated secret is known once the server has been reached, and until the
// process ends.
func TestDeriveNeedsAKnownSecret(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Stop()
	given := at(server)
	given.Prefix, given.Secret = "given", bytes.Repeat([]byte("g"), 32)
	if got := open(t, given).Secret("a")(); len(got) != 32 {
		t.Errorf("%x is derived from a given secret while the server is away", got)
	}
	secret := open(t, at(server)).Secret("a")
	if got := secret(); got != nil {
		t.Errorf("%x is derived from an unknown secret", got)
	}
	server.Restart(t)
	eventually(t, "the secret is known", func() bool { return secret() != nil })
	server.Stop()
	got := secret()
	if again := secret(); len(got) != 32 || !bytes.Equal(again, got) {
		t.Errorf("after the server has gone again: %x, then %x", got, again)
	}
}
