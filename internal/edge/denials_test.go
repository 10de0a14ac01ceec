package edge

import (
	"net/http"
	"testing"

	"github.com/weirlimit/weir/internal/denial"
	"github.com/weirlimit/weir/internal/gateway"
	"github.com/weirlimit/weir/internal/live"
)

// A node is a server whose denial ids a test can open.
type node struct {
	*Server
	hooks *hooks
	open  func(id string) (denial.Facts, error)
}

func newNode(t *testing.T) node {
	t.Helper()
	s, h := opened(t, testConfig(t, twoPolicy))
	return node{s, h, h.operators().Denials}
}

// refused sends requests until one is refused, and returns the refusal's id.
func (n node) refused(t *testing.T) string {
	t.Helper()
	for range 100 {
		if r := n.get("/"); r.StatusCode == http.StatusTooManyRequests {
			return r.Header.Get("X-Weir-Denial")
		}
	}
	t.Fatal("no request is refused")
	return ""
}

// An id names the policy of its own time.
func TestAnIDHasThePolicyInForce(t *testing.T) {
	n := newNode(t)
	if f, err := n.open(n.refused(t)); err != nil || f.Policy != n.policy.State().Version {
		t.Errorf("at the start it opens to %+v, %v", f, err)
	}
	for _, version := range []string{"01234567", "89abcdef"} {
		n.hooks.policyChanged(live.State{Version: version})
		if f, err := n.open(n.refused(t)); err != nil || f.Policy != version {
			t.Errorf("under %s it opens to %+v, %v", version, f, err)
		}
	}
}

// In the access log an agent's hash is the same after a restart. In another data
// directory it is different (D18).
func TestAnAgentsHashIsStableInItsDataDirectory(t *testing.T) {
	hashes := func(dir string) (all [3]uint64) {
		t.Helper()
		c, h := testConfig(t, twoPolicy), new(hooks)
		c.Data = dir
		if err := openDenials(&observing{Config: &c, store: new(openStore), hooks: h, own: new(parts)}); err != nil {
			t.Fatal(err)
		}
		var o gateway.Options
		h.gateway[0](&o)
		for i, agent := range []string{"", "curl/8", "a longer agent than fits into a few words of a register"} {
			hash, ok := o.ValueHash(agent)
			if !ok {
				t.Fatalf("no hash of %q", agent)
			}
			all[i] = hash
		}
		if allocated := testing.AllocsPerRun(100, func() { o.ValueHash("a longer agent than fits into a few words of a register") }); allocated > 0 {
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

// Nodes that share a store share the key. While the key is unknown, no hash is
// logged.
func TestNodesShareTheHashOfAnAgent(t *testing.T) {
	secret := []byte(nil)
	hash := valueHash(func() []byte { return secret })
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
