package httplimit_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
)

// denying gives refusals ids that show the arguments of Options.Denial.
func denying(_ *edge, o *httplimit.Options, _ *identity.Options, _ *weir.Policy) {
	o.Denial = func(d *weir.Decision, caller weir.Keys, scratch *weir.Scratch) string {
		b := d.Binding()
		ip, _ := caller.AppendKey(nil, "ip")
		return fmt.Sprintf("%s/%d/%d/%t", b.Limiter.Name, b.Count, len(ip), len(scratch.Who(&b)) > 0)
	}
}

func TestARefusalHasADenialID(t *testing.T) {
	e := setUp(t, ok, denying)
	const target = "POST /api/v1/widget/satisfaction"
	e.send(target).want(200, 2, 1, 60).wantFields("X-Weir-Denial", "")
	e.send(target).want(200, 2, 0, 60).wantFields("X-Weir-Denial", "")
	e.send(target).want(429, 2, 0, 60).wantFields("X-Weir-Denial", "widget-satisfaction/2/4/true", "Retry-After", "60", "Vary", "Accept-Language")
	e.send("POST /api/v1/widget/leads").want(401, 3, 2, 60).wantFields("X-Weir-Denial", "")

	s := e.startHTTP2(e.server.Config.Handler)
	res, err := s.Client().Post(s.URL+"/api/v1/widget/satisfaction", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if got := res.Header.Values("X-Weir-Denial"); res.StatusCode != 429 || len(got) != 1 || got[0] != "widget-satisfaction/2/4/true" {
		t.Errorf("over HTTP/2 the answer is %d with the ids %q", res.StatusCode, got)
	}
}

func TestOnlyARefusalHasADenialID(t *testing.T) {
	e := setUp(t, ok, func(_ *edge, o *httplimit.Options, _ *identity.Options, p *weir.Policy) {
		*p = limiters(t, map[string][]string{"closed /closed": {"5 per second by ip"}})
		p.Limiters[0].OnStoreFailure = weir.FailDeny
		o.Denial = func(*weir.Decision, weir.Keys, *weir.Scratch) string {
			t.Error("an id was asked for")
			return "id"
		}
	})
	e.send("GET /open")
	e.send("GET /closed").want(200, 5, 4, 1)
	d, err := weir.New(e.decider.Policy(), brokenStore{}, weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	who, err := identity.New(identity.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e.serve(d, httplimit.Options{Identity: who, Denial: func(*weir.Decision, weir.Keys, *weir.Scratch) string {
		t.Error("an id was asked for while the store does not answer")
		return "id"
	}}, http.HandlerFunc(ok))
	if a := e.send("GET /closed"); a.status != 503 || a.field("X-Weir-Denial") != "" {
		t.Errorf("the answer is %d with %q", a.status, a.lines)
	}
}

// With Options.Denial, a handler's own field of that name is dropped in any
// spelling, and from trailers, too. Otherwise the field is the handler's.
func TestAHandlersOwnDenialFieldIsDropped(t *testing.T) {
	handler := func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h["x-weir-denial"], h["X-Weir-Denial"] = []string{"forged"}, []string{"forged"}
		h.Set("Trailer", "X-Weir-Denial")
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = io.WriteString(w, "later")
		h.Set("X-Weir-Denial", "forged")
		h.Set(http.TrailerPrefix+"X-Weir-Denial", "forged")
	}
	const target = "POST /api/v1/widget/typing"
	e := setUp(t, handler, denying)
	if a := e.send(target).want(429, 60, 0, 60); strings.Contains(strings.Join(a.lines, "\n")+a.body, "forged") {
		t.Errorf("the answer carries it: %q %q", a.lines, a.body)
	}
	e = setUp(t, handler)
	if a := e.send(target).want(429, 60, 0, 60); !strings.Contains(strings.Join(a.lines, "\n"), "X-Weir-Denial: forged") {
		t.Errorf("without ids the field is not the handler's: %q", a.lines)
	}
}

// If a caller is answered 401, it is counted and observed by its address.
func TestTheObserverGetsTheCountedCaller(t *testing.T) {
	type observed struct{ outcome, denial, who, ip string }
	var seen []observed
	observing := func(e *edge, o *httplimit.Options, _ *identity.Options, _ *weir.Policy) {
		o.Observe = func(ob answer.Observation) {
			if ob.Outcome == answer.Unlimited {
				if ob.Who != nil || ob.Caller != nil || ob.Denial != "" {
					t.Errorf("the observation of an unlimited request is %+v", ob)
				}
				return
			}
			ip, _ := ob.Caller.AppendKey(nil, "ip")
			seen = append(seen, observed{ob.Outcome.String(), ob.Denial, string(ob.Who), string(ip)})
		}
	}
	e := setUp(t, ok, denying, observing)
	for range 3 {
		e.send("POST /api/v1/widget/satisfaction")
	}
	e.send("POST /api/v1/widget/leads")
	e.send("GET /else")
	other := httptest.NewRequest("POST", "/api/v1/widget/satisfaction", nil) // from another address
	e.middleware.Wrap(http.HandlerFunc(ok)).ServeHTTP(httptest.NewRecorder(), other)
	e.server.Close()
	if len(seen) != 5 {
		t.Fatalf("there are %d observations", len(seen))
	}
	for i, s := range seen {
		denial := ""
		if i == 2 {
			denial = "widget-satisfaction/2/4/true"
		}
		if s.denial != denial || len(s.ip) == 0 || !strings.Contains(s.who, s.ip) {
			t.Errorf("%d: the observation is %+v, want the denial %q and the address in who", i, s, denial)
		}
	}
	if seen[0].who != seen[1].who || seen[1].who != seen[2].who || seen[4].who == seen[0].who {
		t.Errorf("one caller has several keys, or two have one: %q", seen)
	}
}
