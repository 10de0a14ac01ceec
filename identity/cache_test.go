package identity

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// entries returns the number of a cache's entries, and the bytes of their
// credentials.
func (c *verifiedCache[V]) entries() (n, bytes int) {
	t := c.table.Load()
	for i := range t.sets {
		for j := range t.sets[i].ways {
			if e := t.sets[i].ways[j].Load(); e != nil {
				n, bytes = n+1, bytes+len(e.credential)
			}
		}
	}
	return n, bytes
}

// A token of 8 KiB can hold 100 KiB of small values.
func TestASessionsClaimsCountAgainstTheBound(t *testing.T) {
	var few, many verifiedCache[SessionClaims]
	list := make([]any, 2000)
	for i := range list {
		list[i] = map[string]any{}
	}
	for i := range 10_000 {
		s := fmt.Sprintf("%08d", i)
		few.keep(s, &SessionClaims{})
		many.keep(s, &SessionClaims{Claims: map[string]any{"list": list}})
	}
	// Of those that meet by chance one makes way, though there is room elsewhere.
	if n, _ := few.entries(); n < 9_900 {
		t.Fatalf("%d small sessions are kept, want nearly all: the test is too large", n)
	}
	if n, _ := many.entries(); n*len(list)*64 > 2*cacheBytes {
		t.Errorf("%d sessions with %d values each are kept", n, len(list))
	}
}

// An entry that is used does not make way.
func TestACredentialInUseSurvivesAFlood(t *testing.T) {
	var c verifiedCache[int]
	hot, v := 1, 7
	c.keep("hot", &hot)
	c.keep("cold", &v)
	for i := range 300_000 {
		c.keep(fmt.Sprintf("%08d", i), &v)
		if i%1000 == 0 && c.find("hot") != &hot {
			t.Fatalf("forgotten after %d others", i)
		}
	}
	if c.find("cold") != nil {
		t.Error("an unused one is still there: the flood was too small")
	}
}

func TestAKeptCredentialIsFoundByTheWholeOfIt(t *testing.T) {
	var c verifiedCache[int]
	a, b := 1, 2
	c.keep("payload1.signature", &a)
	c.keep("payload2.signature", &b)
	if c.find("payload1.signature") != &a || c.find("payload2.signature") != &b || c.find("payload3.signature") != nil || c.find("signature") != nil || c.find("") != nil {
		t.Error("another credential's entry was found")
	}
	c.drop("payload1.signature")
	if c.find("payload1.signature") != nil || c.find("payload2.signature") != &b {
		t.Error("drop dropped another one, or none")
	}
}

func TestACacheIsSharedByManyRequests(t *testing.T) { // for the race detector, across generations
	var c verifiedCache[int]
	v, large := 7, strings.Repeat("x", 4<<10)
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 2_000 {
				k := fmt.Sprintf("%s%d/%d", large, i, g%2)
				c.keep(k, &v)
				if found := c.find(k); found != nil && found != &v {
					t.Error("another entry was found")
				}
				if i%10 == 0 {
					c.drop(k)
				}
			}
		})
	}
	all.Wait()
}
