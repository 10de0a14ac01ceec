package denial

import (
	"bytes"
	"crypto/rand"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// A neighbor is a caller with an address and a token. It counts how often the token is asked for.
type neighbor struct {
	address, token string
	asked          *int
}

func (n neighbor) Addr() netip.Addr { return netip.MustParseAddr(n.address) }

func (n neighbor) AppendKey(dst []byte, source string) ([]byte, bool) {
	switch source {
	case "ip":
		return append(dst, n.Addr().AsSlice()...), true
	case "token":
		*n.asked++
		return append(dst, n.token...), true
	}
	return dst, false
}

// The id of a denial holds the limiter, what it knows the caller by, and the item of deny. The
// credential of a denied address is not asked for.
func TestTheIDOfADenialHoldsWhoWasDenied(t *testing.T) {
	asked := 0
	at := time.Unix(1_800_000_000, 0)
	w := newWorld(t, "9 per minute by token")
	p := w.decider.Policy()
	p.Limiters[0].Deny = []weir.Who{{Network: netip.MustParsePrefix("192.0.2.0/24")}, {Token: "bad"}}
	if err := w.decider.Swap(p); err != nil {
		t.Fatal(err)
	}
	s, err := New(func() []byte { return bytes.Repeat([]byte("s"), 32) }, func() string { return w.version }, rand.Reader, func() time.Time { return at })
	if err != nil {
		t.Fatal(err)
	}
	idOf := func(n neighbor) string {
		t.Helper()
		var scratch weir.Scratch
		d, err := w.decider.Decide(t.Context(), weir.Request{Limiters: []string{"messages"}, Keys: n, Scratch: &scratch})
		if err != nil || d.Outcome != weir.Denied {
			t.Fatalf("%+v, %v", d, err)
		}
		return s.ID(&d, n, &scratch)
	}
	byAddress := neighbor{"192.0.2.7", "good", &asked}
	id := idOf(byAddress)
	want := Facts{Limiter: "messages", At: at.Unix(), Policy: w.version, Denied: true, Callers: []Caller{{Source: "ip", Value: []byte("\xc0\x00\x02\x07")}, {Source: "deny:", Value: []byte("192.0.2.0/24")}}}
	if got := w.open(s, id); !reflect.DeepEqual(got, want) || asked != 0 {
		t.Errorf("%+v after %d looks at the token, want %+v", got, asked, want)
	}
	if again := idOf(byAddress); again != id {
		t.Error("a denial within the same second has another id")
	}
	if other := idOf(neighbor{"192.0.2.8", "good", &asked}); other == id {
		t.Error("another caller has the same id")
	}
	at = at.Add(time.Second)
	if later := idOf(byAddress); later == id {
		t.Error("a denial a second later has the same id")
	}
	got := w.open(s, idOf(neighbor{"198.51.100.7", "bad", &asked}))
	if len(got.Callers) != 2 || got.Callers[1].Source != "token" || string(got.Callers[1].Value) != "bad" || !got.Denied || got.InFlight {
		t.Errorf("by its token: %+v", got)
	}
}
