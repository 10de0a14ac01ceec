package redis_test

import (
	"bytes"
	"testing"

	"github.com/weirlimit/weir/e2e/redistest"
	"github.com/weirlimit/weir/redisstore"
)

// Every process derives the same bytes for a label, whether the secret was generated or given.
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
			first, second := one.Secret(label)(), other.Secret(label)()
			if len(first) != 32 || !bytes.Equal(first, second) {
				t.Errorf("%s, label %q: one process makes %x of it, another %x", name, label, first, second)
			}
			if before, taken := seen[string(first)]; taken {
				t.Errorf("%s, label %q: the same as %s", name, label, before)
			}
			seen[string(first)] = name + " " + label
		}
	}
}

// A secret from the server is known once the server has been reached, for the life of the process.
func TestNothingIsDerivedOfASecretThatIsNotKnown(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Stop()
	given := at(server)
	given.Prefix, given.Secret = "given", bytes.Repeat([]byte("g"), 32)
	if got := open(t, given).Secret("a")(); len(got) != 32 {
		t.Errorf("of a given secret %x is made while the server is away", got)
	}
	secret := open(t, at(server)).Secret("a")
	if got := secret(); got != nil {
		t.Errorf("%x is made of a secret that nobody knows", got)
	}
	server.Restart(t)
	eventually(t, "the secret is known", func() bool { return secret() != nil })
	server.Stop()
	got := secret()
	if again := secret(); len(got) != 32 || !bytes.Equal(again, got) {
		t.Errorf("after the server has gone again: %x, then %x", got, again)
	}
}
