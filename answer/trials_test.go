package answer_test

import (
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/memstore"
)

// The response is read for limiters in mode shadow too, wherever each of them reads its cost. The
// answer to the request, which they do not change, is as without them.
func TestTheResponseSettlesShadows(t *testing.T) {
	p := settling(func(l *weir.Limiter) { l.Actual = weir.Reading{Form: weir.ReadHeader, Name: "X-Cost"} })
	tokens := settling(func(l *weir.Limiter) {
		l.Name, l.Mode, l.Cost, l.Actual = "tokens", weir.Shadow, 60, weir.Reading{Form: weir.ReadJSON, Name: "usage.total"}
	}).Limiters[0]
	p.Limiters = append(p.Limiters, tokens)
	for _, test := range []struct {
		name string
		p    weir.Policy
		want int64 // -1: no limiter covers the request
	}{{"beside a limiter", p, 97}, {"alone", weir.Policy{Limiters: p.Limiters[1:]}, -1}} {
		t.Run(test.name, func(t *testing.T) {
			d, fitted := open(t, test.p, answer.Options{}), 0
			store, err := memstore.New(memstore.Options{Now: d.clock.Now})
			if err != nil {
				t.Fatal(err)
			}
			decider, err := weir.New(test.p, store, weir.Options{OnShadow: func(s weir.Shadowed) {
				if s.Decision.Allowed {
					fitted++
				}
			}})
			if err != nil {
				t.Fatal(err)
			}
			if d.judge, err = answer.New(decider, answer.Options{Identity: d.who}); err != nil {
				t.Fatal(err)
			}
			for range 5 { // of 60 units, two would not fit
				a, _ := d.ask(from("192.0.2.7", ""), chat)
				if a.WantsPlain() {
					t.Fatal("a trial keeps the response from being compressed, which the caller can see")
				}
				if !d.judge.Head(t.Context(), a, 200, head("X-Cost: 3", "Content-Type: application/json")) {
					t.Fatal("the body is not read")
				}
				d.judge.Read(a, []byte(`{"usage": {"total": 7}}`))
				d.judge.End(t.Context(), a)
				if test.want >= 0 {
					d.wantRemaining(test.want)
					test.want -= 3
				}
			}
			if fitted != 5 {
				t.Errorf("%d requests fitted under the shadow, want 5", fitted)
			}
		})
	}
}
