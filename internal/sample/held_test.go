package sample

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

func TestASessionHoldsEightRequests(t *testing.T) {
	k := setUp(t)
	url := k.live()
	var open []*tape
	for range 5 {
		open = append(open, k.listen(url, k.session, ""))
	}
	for range 3 { // waits count like streams
		ctx, leave := context.WithCancel(t.Context())
		open = append(open, &tape{leave: leave})
		go k.leave(k.request(ctx, k.session, "?after=1&wait=25", ""))
	}
	eventually(t, "eight are held", func() bool { n, _, _, _ := k.holds(); return n == 8 })
	k.do(k.request(t.Context(), k.session, "", "text/event-stream")).wantError(409, "conflict", "session", "8")
	k.do(k.request(t.Context(), k.session, "?after=1&wait=25", "")).wantError(409, "conflict", "session", "8")
	k.do(k.request(t.Context(), k.session, "?after=1", "")).want(200)         // not held
	k.do(k.request(t.Context(), k.session, "?after=0&wait=25", "")).want(200) // not held either
	// another session is not affected
	k.listen(url, k.visitor("demo"), "").leave()
	for _, one := range []int{0, 7} {
		open[one].leave()
		eventually(t, "its place is free", func() bool { n, _, _, _ := k.holds(); return n == 7 })
		k.listen(url, k.session, "")
		k.do(k.request(t.Context(), k.session, "", "text/event-stream")).wantError(409, "conflict")
	}
	k.b.Drain()
	k.wantNobody()
}

// request returns a request for a session's events.
func (k *bench) request(ctx context.Context, credential, query, accept string) *http.Request {
	r := httptest.NewRequestWithContext(ctx, "GET", "/api/v1/widget/events"+query, nil)
	r.Header.Set("Authorization", credential)
	r.Header.Set("Accept", accept)
	return r
}

// An address is a whole IPv4 address, or a /64 of IPv6 (D12).
func TestAnAddressHoldsSixtyFourRequests(t *testing.T) {
	k := setUp(t)
	from := func(ctx context.Context, credential, peer string) *http.Request {
		r := k.request(ctx, credential, "?after=1&wait=25", "")
		r.RemoteAddr = peer
		return r
	}
	var peers sync.WaitGroup
	gone, leave := context.WithCancel(t.Context())
	for i := range 64 {
		if i%8 == 0 {
			k.session = k.visitor("demo")
		}
		v4 := from(gone, k.session, fmt.Sprint("192.0.2.7:", 1000+i))
		v6 := from(gone, k.visitor("demo"), fmt.Sprintf("[2001:db8::%x]:80", i+1))
		for _, r := range []*http.Request{v4, v6} {
			peers.Go(func() { k.leave(r) })
		}
	}
	eventually(t, "two addresses hold 64", func() bool { n, _, _, _ := k.holds(); return n == 128 })
	if _, sessions, addresses, _ := k.holds(); sessions != 72 || addresses != 2 {
		t.Errorf("%d sessions and %d addresses are remembered, want 72 and 2", sessions, addresses)
	}
	k.session = k.visitor("demo")
	for _, peer := range []string{"192.0.2.7:1", "[2001:db8::ffff:0:0:1]:80"} {
		k.do(from(t.Context(), k.session, peer)).wantError(409, "conflict", "address", "64")
	}
	for _, peer := range []string{"192.0.2.8:1", "[2001:db8:0:1::1]:80"} {
		peers.Go(func() { k.leave(from(gone, k.session, peer)) })
	}
	eventually(t, "others have places", func() bool { n, _, _, _ := k.holds(); return n == 130 })
	leave()
	peers.Wait()
	k.wantNobody()
}

// leave sends a request whose client leaves. The handler is aborted if that happens while it reads
// the database.
func (k *bench) leave(r *http.Request) {
	defer func() {
		if failure := recover(); failure != nil && failure != http.ErrAbortHandler {
			panic(failure)
		}
	}()
	k.do(r)
}

func TestTheServerHoldsNoMoreThanItCan(t *testing.T) {
	h := newHeld()
	h.inAll = 2
	first, err := h.hold("a", "1")
	second, err2 := h.hold("b", "2")
	if err = errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	var told *refusal
	if _, err := h.hold("c", "3"); !errors.As(err, &told) || told.status != 503 {
		t.Errorf("the third is answered %v, want 503", err)
	}
	first()
	third, err := h.hold("c", "3")
	if err != nil {
		t.Fatal(err)
	}
	second()
	third()
	if h.all != 0 || len(h.sessions)+len(h.addresses) != 0 {
		t.Errorf("%+v remembers somebody", h)
	}
}
