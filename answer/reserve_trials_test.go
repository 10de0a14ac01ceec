package answer_test

import (
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/memstore"
)

// A watched is an upload that counts how often its body is read.
type watched struct {
	upload
	reads *int
}

func (w watched) Body(limit int) []byte {
	*w.reads++
	return w.upload.Body(limit)
}

// What is tried out reserves what the request tells, unless its body would have to be read for that
// alone. It does not reserve what the request tells the limiter in force.
func TestATrialReservesWhatTheRequestTells(t *testing.T) {
	field, member := weir.Reading{Form: weir.ReadHeader, Name: "X-Max-Cost"}, weir.Reading{Form: weir.ReadJSON, Name: "n"}
	live := func(from weir.Reading) *weir.Reading { return &from }
	for _, test := range []struct {
		name        string
		live        *weir.Reading // nil: no limiter is in force
		trial       weir.Reading  // zero: the trial reserves 8000
		want, reads int64
	}{
		{"a field", live(weir.Reading{}), field, 2 * 1000, 0},
		{"a field, of a request without a limiter", nil, field, 2 * 1000, 0},
		{"a body that is not read", live(weir.Reading{}), member, 8000, 0},
		{"a body that is not read for the limiter in force", live(field), member, 8000, 0},
		{"a body of a request without a limiter", nil, member, 8000, 0},
		{"a body that is read anyway", live(weir.Reading{Form: weir.ReadJSON, Name: "m"}), member, 2 * 300, 1},
		{"a fixed cost beside a told one", live(field), weir.Reading{}, 8000, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			trial := reserving(test.trial)
			if trial.Limiters[0].Reserve.Plus = 0; test.trial == (weir.Reading{}) {
				trial.Limiters[0].Reserve = weir.Reserve{}
			}
			shadow := trial.Limiters[0]
			shadow.Name, shadow.Mode = "shadow", weir.Shadow
			other := trial.Limiters[0]
			other.Routes = []weir.Route{{Path: "/other"}}
			p := weir.Policy{Limiters: []weir.Limiter{shadow, other}}
			if test.live != nil {
				enforced := reserving(*test.live).Limiters[0]
				enforced.Name = "live"
				if *test.live == (weir.Reading{}) {
					enforced.Reserve = weir.Reserve{}
				}
				p.Limiters = append(p.Limiters, enforced)
			}
			store, err := memstore.New(memstore.Options{})
			if err != nil {
				t.Fatal(err)
			}
			var costs []int64
			decider, err := weir.New(p, store, weir.Options{
				OnShadow:    func(s weir.Shadowed) { costs = append(costs, s.Decision.Cost) },
				OnCandidate: func(c weir.Compared) { costs = append(costs, c.Candidate.Cost) },
			})
			if err != nil {
				t.Fatal(err)
			}
			counts, err := memstore.New(memstore.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := decider.SetCandidate(&trial, counts); err != nil {
				t.Fatal(err)
			}
			d := open(t, p, answer.Options{})
			judge, err := answer.New(decider, answer.Options{Identity: d.who})
			if err != nil {
				t.Fatal(err)
			}
			reads := 0
			u := watched{upload{from("192.0.2.7", "Content-Type", "application/json"), `{"n": 300, "m": 7}`}, &reads}
			u.header["X-Max-Cost"] = []string{"1000"}
			q := chat
			q.Caller = new(identity.Caller)
			d.who.Start(q.Caller, u)
			var a answer.Answer
			if err := judge.Answer(t.Context(), &q, &a); err != nil {
				t.Fatal(err)
			}
			if len(costs) != 2 || costs[0] != test.want || costs[1] != test.want {
				t.Errorf("the shadow and the candidate reserve %d, want %d", costs, test.want)
			}
			if int64(min(reads, 1)) != test.reads {
				t.Errorf("the body was read %d times, want %d", reads, test.reads)
			}
		})
	}
}

// A reported is what the sender of a request without HTTP reports of it, by place.
type reported map[weir.Reading]int64

func (r reported) Reported(from weir.Reading) (int64, bool) { n, ok := r[from]; return n, ok }
func (reported) Waits(weir.Reading) bool                    { return false }

// A door without HTTP requests passes on what a request reports, and each limiter reserves by its
// own Reserve: the one in force, the one in Shadow mode, and the candidate's.
func TestATrialOfAKeysDoorReservesItsOwn(t *testing.T) {
	field, member := weir.Reading{Form: weir.ReadHeader, Name: "X-Max-Cost"}, weir.Reading{Form: weir.ReadJSON, Name: "n"}
	live, shadow, candidate := reserving(field), reserving(member), reserving(field)
	shadow.Limiters[0].Name, shadow.Limiters[0].Mode = "shadow", weir.Shadow
	candidate.Limiters[0].Reserve = weir.Reserve{From: field, Times: 5}
	live.Limiters = append(live.Limiters, shadow.Limiters...)
	for _, test := range []struct {
		name                    string
		reporter                weir.Reporter
		live, shadow, candidate int64
	}{
		{"both places", reported{field: 100, member: 7}, 700, 514, 500},
		{"one place", reported{field: 100}, 700, 8000, 500},
		{"nothing", nil, 8000, 8000, 8000},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := open(t, live, answer.Options{})
			store, err := memstore.New(memstore.Options{})
			if err != nil {
				t.Fatal(err)
			}
			var got [3]int64
			decider, err := weir.New(live, store, weir.Options{
				OnShadow:    func(s weir.Shadowed) { got[1] = s.Decision.Cost },
				OnCandidate: func(c weir.Compared) { got[2] = c.Candidate.Cost },
			})
			if err != nil {
				t.Fatal(err)
			}
			counts, err := memstore.New(memstore.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := decider.SetCandidate(&candidate, counts); err != nil {
				t.Fatal(err)
			}
			judge, err := answer.New(decider, answer.Options{Identity: d.who})
			if err != nil {
				t.Fatal(err)
			}
			q := chat
			q.Keys, q.Reporter = keys{"ip": "a"}, test.reporter
			var a answer.Answer
			if err := judge.Answer(t.Context(), &q, &a); err != nil {
				t.Fatal(err)
			}
			got[0] = a.Decision.Cost
			if want := [3]int64{test.live, test.shadow, test.candidate}; got != want {
				t.Errorf("the limiter, the shadow and the candidate reserve %d, want %d", got, want)
			}
		})
	}
}
