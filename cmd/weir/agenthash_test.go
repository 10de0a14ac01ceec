package main

import (
	"log/slog"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/gateway"
)

// The hash of an agent in the access log is the same after a restart, and in another data directory
// another one (D18).
func TestTheHashOfAnAgentLastsAsLongAsTheDataDirectory(t *testing.T) {
	hashes := func(dir string) (all [3]uint64) {
		t.Helper()
		var o gateway.Options
		d := new(denials)
		if err := d.open(&serveFlags{data: dir}, weir.Policy{}, slog.New(slog.DiscardHandler), &o); err != nil {
			t.Fatal(err)
		}
		for i, agent := range []string{"", "curl/8", "a longer agent than fits into a few words of a register"} {
			hash, ok := o.AgentHash(agent)
			if !ok {
				t.Fatalf("no hash of %q", agent)
			}
			all[i] = hash
		}
		if allocated := testing.AllocsPerRun(100, func() { o.AgentHash("a longer agent than fits into a few words of a register") }); allocated > 0 {
			t.Errorf("%v allocations", allocated)
		}
		return all
	}
	here, there := t.TempDir(), t.TempDir()
	first, again, other := hashes(here), hashes(here), hashes(there)
	if first != again {
		t.Errorf("%x, and after a restart %x", first, again)
	}
	if first[0] == first[1] || first[1] == first[2] || first == other {
		t.Errorf("%x in one directory, %x in another", first, other)
	}
}

// Nodes that share a store have one key; while it is not known nothing is logged.
func TestTheHashOfAnAgentIsThatOfAllNodes(t *testing.T) {
	secret := []byte(nil)
	d := &denials{agents: func() []byte { return secret }}
	hash, err := d.agentHash(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := hash("curl"); ok {
		t.Error("a hash without a key")
	}
	secret = make([]byte, 32)
	one, ok := hash("curl")
	secret = append(make([]byte, 15), 1)
	two, _ := hash("curl")
	if !ok || one == two {
		t.Errorf("%x, %v, with another key %x", one, ok, two)
	}
}
