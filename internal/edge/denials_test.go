package edge

import (
	"net/http"
	"strings"
	"testing"

	"github.com/weirlimit/weir/e2e/redistest"
	"github.com/weirlimit/weir/internal/denial"
	"github.com/weirlimit/weir/internal/gateway"
	"github.com/weirlimit/weir/internal/live"
)

// A node is a server whose denial ids a test opens.
type node struct {
	*Server
	hooks *hooks
	open  func(id string) (denial.Facts, error)
}

// newNode opens a server with the store at url; empty means the embedded one.
func newNode(t *testing.T, url string) node {
	t.Helper()
	c := testConfig(t, twoPolicy)
	if url != "" {
		if err := c.Store.Set(url); err != nil {
			t.Fatal(err)
		}
	}
	s, h := opened(t, c)
	return node{s, h, h.operators().Denials}
}

// refused sends requests until one is refused, and returns its id.
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

// Nodes that share a store open each other's ids. A node that starts during an outage of the store
// does not know the secret: it seals with one of its own, and the others can report that.
func TestNodesOpenEachOthersIDs(t *testing.T) {
	redis := redistest.Start(t)
	one, other := newNode(t, redis.URL()), newNode(t, redis.URL())
	id := one.refused(t)
	for _, n := range []node{one, other} {
		if f, err := n.open(id); err != nil || f.Limiter != "all" || f.Limit != 2 {
			t.Errorf("it opens to %+v, %v", f, err)
		}
	}
	if _, err := newNode(t, "").open(id); err == nil || !strings.Contains(err.Error(), "another secret") {
		t.Errorf("a stranger's answer: %v", err)
	}
	redis.Stop()
	alone := newNode(t, redis.URL())
	id = alone.refused(t)
	if f, err := alone.open(id); err != nil || f.Limiter != "all" {
		t.Errorf("to itself it opens to %+v, %v", f, err)
	}
	if _, err := one.open(id); err == nil || !strings.Contains(err.Error(), "no shared secret") {
		t.Errorf("to another node: %v", err)
	}
}

// An id has the policy of its own time.
func TestAnIDHasThePolicyInForce(t *testing.T) {
	n := newNode(t, "")
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

// The hash of an agent in the access log is the same after a restart, and differs in another data
// directory (D18).
func TestTheHashOfAnAgentLastsAsLongAsTheDataDirectory(t *testing.T) {
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
	hash := agentHash(func() []byte { return secret })
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
