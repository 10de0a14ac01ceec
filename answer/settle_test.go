package answer_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/memstore"
)

const flightText = "Too many requests at the same time. Please wait until one of them has ended."

// settling returns a policy with one limiter of 100 units a minute by address, of which a request
// reserves 10.
func settling(change func(l *weir.Limiter)) weir.Policy {
	l := weir.Limiter{
		Name:    "chat",
		Routes:  []weir.Route{{Method: "POST", Path: "/v1/chat"}},
		Windows: []weir.Window{{Limit: 100, Per: time.Minute, Key: weir.Key{{"ip"}}}},
		Cost:    10,
	}
	change(&l)
	return weir.Policy{Limiters: []weir.Limiter{l}}
}

func inFlight(limit int64) weir.InFlight { return weir.InFlight{Limit: limit, Key: weir.Key{{"ip"}}} }

// A caller that has too many requests under way is told so. It need not slow down.
func TestARefusalByTheLimitInFlightSaysSo(t *testing.T) {
	for _, test := range []struct{ name, message, general, accept, want string }{
		{"in English", "", "", "en", flightText},
		{"in German", "", "", "de", "Zu viele gleichzeitige Anfragen. Bitte warten Sie, bis eine davon beendet ist."},
		{"the limiter's own", "widget", "", "en", widgetText},
		{"the policy's own", "", "bulk-sync", "en", syncText},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := settling(func(l *weir.Limiter) { l.InFlight, l.Message = inFlight(1), test.message })
			p.Answers.Refused.Message = test.general
			d := open(t, p, answer.Options{})
			held, _ := d.ask(from("192.0.2.7", ""), chat)
			a, fields := d.ask(from("192.0.2.7", "Accept-Language", test.accept), chat)
			if held.Status != 0 || a.Status != 429 || string(a.Body()) != rateLimited(test.want) {
				t.Errorf("the statuses are %d and %d, the text is %s", held.Status, a.Status, a.Body())
			}
			for name, want := range map[string]string{
				"X-RateLimit-Limit": "1", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1800000001", "Retry-After": "1",
			} {
				if fields[name] != want {
					t.Errorf("%s is %q, want %q", name, fields[name], want)
				}
			}
			d.judge.End(t.Context(), held)
			if a, _ := d.ask(from("192.0.2.7", ""), chat); a.Status != 0 {
				t.Errorf("the status is %d after the other request has ended", a.Status)
			}
		})
	}
}

// head returns the lines of the fields of a response's head.
func head(fields ...string) func(string) []string {
	return func(name string) (lines []string) {
		for _, f := range fields {
			if key, value, _ := strings.Cut(f, ": "); key == name {
				lines = append(lines, value)
			}
		}
		return lines
	}
}

// wantRemaining asks once more, without spending, and checks what is left of the budget.
func (d *door) wantRemaining(want int64) {
	d.Helper()
	q := chat
	q.Cost = weir.Peek
	a, _ := d.ask(from("192.0.2.7", ""), q)
	if got := a.Decision.Standings()[0].Remaining; got != want {
		d.Errorf("%d units are left, want %d", got, want)
	}
}

func TestAStatusThatIsNotCountedGivesBackWhatWasCharged(t *testing.T) {
	fails := weir.Count{Statuses: []weir.Statuses{{Low: 401, High: 401}, {Low: 403, High: 403}}}
	serves := weir.Count{Not: true, Statuses: []weir.Statuses{{Low: 500, High: 599}}}
	for _, test := range []struct {
		name   string
		count  weir.Count
		status int
		want   string
	}{
		{"a status that is counted", fails, 401, "90"},
		{"another", fails, 200, "100"},
		{"a tunnel", fails, 101, "100"},
		{"a caller that left before", fails, 0, "90"},
		{"a failure of the backend", serves, 503, "100"},
		{"an answer", serves, 404, "90"},
		{"a tunnel that is counted", serves, 101, "90"},
		{"a caller that left a backend that fails", serves, 0, "90"},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := open(t, settling(func(l *weir.Limiter) { l.Count = test.count }), answer.Options{})
			a, before := d.ask(from("192.0.2.7", ""), chat)
			if before["X-RateLimit-Remaining"] != "90" {
				t.Errorf("%s units are left before the answer, want 90", before["X-RateLimit-Remaining"])
			}
			d.judge.Head(t.Context(), a, test.status, head())
			if got := maps.Collect(a.Fields())["X-RateLimit-Remaining"]; got != test.want {
				t.Errorf("the answer says that %s units are left, want %s", got, test.want)
			}
			d.judge.End(t.Context(), a)
			if again, _ := d.ask(from("192.0.2.7", ""), chat); again.Decision.Binding().Count != a.Decision.Binding().Count+10 {
				t.Errorf("%d units are spent by the next request, after %d", again.Decision.Binding().Count, a.Decision.Binding().Count)
			}
		})
	}
}

func TestAFieldOfTheHeadTellsTheCost(t *testing.T) {
	for _, test := range []struct {
		name   string
		fields []string
		want   int64
	}{
		{"less", []string{"X-Cost: 3"}, 97},
		{"nothing", []string{"X-Cost: 0"}, 100},
		{"more", []string{"X-Cost: 30"}, 70},
		{"more than the limit", []string{"X-Cost: 130"}, 0},
		{"beside a trailer", []string{"X-Cost: 3", "Trailer: X-Other"}, 97},

		{"missing", nil, 90},
		{"negative", []string{"X-Cost: -3"}, 90},
		{"2^31", []string{"X-Cost: 2147483648"}, 90},
		{"2^63", []string{"X-Cost: 9223372036854775808"}, 90},
		{"a fraction", []string{"X-Cost: 3.0"}, 90},
		{"a text", []string{"X-Cost: three"}, 90},
		{"quoted", []string{`X-Cost: "3"`}, 90},
		{"twice", []string{"X-Cost: 3", "X-Cost: 3"}, 90},
		{"in a trailer", []string{"X-Cost: 3", "Trailer: X-Other, x-cost"}, 90},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := open(t, settling(func(l *weir.Limiter) { l.Actual = weir.Reading{Form: weir.ReadHeader, Name: "X-Cost"} }), answer.Options{})
			a, _ := d.ask(from("192.0.2.7", ""), chat)
			if d.judge.Head(t.Context(), a, 200, head(test.fields...)) {
				t.Error("the body is to be read")
			}
			if got := a.Decision.Binding().Remaining; got != test.want {
				t.Errorf("the answer says that %d units are left, want %d", got, test.want)
			}
			d.judge.End(t.Context(), a)
			d.wantRemaining(test.want)
		})
	}
}

func TestTheBodyTellsTheCost(t *testing.T) {
	const json, events = "Content-Type: application/json", "Content-Type: text/event-stream"
	for _, test := range []struct {
		name   string
		fields []string
		body   string
		want   int64
	}{
		{"JSON", []string{json}, `{"usage":{"total":3}}`, 97},
		{"a kind of JSON", []string{"Content-Type: application/problem+json; charset=utf-8"}, `{"usage":{"total":3}}`, 97},
		{"events", []string{events}, "data: {\"usage\":null}\n\ndata: {\"usage\":{\"total\":3}}\n\ndata: [DONE]\n\n", 97},
		{"events that break off", []string{events}, "data: {\"usage\":{\"total\":3}}\n\ndata: {\"usa", 97},
		{"not compressed", []string{json, "Content-Encoding: identity"}, `{"usage":{"total":3}}`, 97},
		{"more", []string{json}, `{"usage":{"total":120}}`, 0},

		{"missing", []string{json}, `{}`, 90},
		{"empty, as of a HEAD, 204 and 304", []string{json}, ``, 90},
		{"broken off", []string{json}, `{"usage":{"total":3}`, 90},
		{"negative", []string{json}, `{"usage":{"total":-3}}`, 90},
		{"compressed", []string{json, "Content-Encoding: gzip"}, `{"usage":{"total":3}}`, 90},
		{"another type", []string{"Content-Type: text/plain"}, `{"usage":{"total":3}}`, 90},
		{"no type", nil, `{"usage":{"total":3}}`, 90},
		{"two types", []string{json, json}, `{"usage":{"total":3}}`, 90},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := open(t, settling(func(l *weir.Limiter) { l.Actual = weir.Reading{Form: weir.ReadJSON, Name: "usage.total"} }), answer.Options{})
			a, _ := d.ask(from("192.0.2.7", ""), chat)
			if !a.WantsPlain() {
				t.Error("the response may be compressed")
			}
			d.judge.Head(t.Context(), a, 200, head(test.fields...))
			if got := a.Decision.Binding().Remaining; got != 90 {
				t.Errorf("the head says that %d units are left, want 90", got)
			}
			for _, c := range []byte(test.body) {
				d.judge.Read(a, []byte{c})
			}
			d.judge.End(t.Context(), a)
			d.wantRemaining(test.want)
		})
	}
}

// A handler may tell its cost before its head, and after, once.
func TestAHandlerTellsTheCost(t *testing.T) {
	counts := weir.Count{Not: true, Statuses: []weir.Statuses{{Low: 500, High: 599}}}
	d := open(t, settling(func(l *weir.Limiter) { l.Count = counts }), answer.Options{})
	for _, test := range []struct {
		name          string
		before, after int64 // -1: not told
		status        int
		inHead, want  int64 // what is left of 100
	}{
		{"before the head", 3, -1, 200, 97, 97},
		{"after it", -1, 3, 200, 90, 97},
		{"more", 130, -1, 200, 0, 0},
		{"nothing", -1, 0, 200, 90, 100},
		{"before a status that is not counted", 3, -1, 500, 100, 100},
		{"after a status that is not counted", -1, 3, 500, 100, 100},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := *d
			d.TB = t
			d.clock.Advance(time.Hour) // the window before is over
			a, _ := d.ask(from("192.0.2.7", ""), chat)
			if test.before >= 0 {
				if err := d.judge.Spent(t.Context(), a, test.before); err != nil {
					t.Error(err)
				}
			}
			d.judge.Head(t.Context(), a, test.status, head())
			if got := a.Decision.Binding().Remaining; got != test.inHead {
				t.Errorf("the head says that %d units are left, want %d", got, test.inHead)
			}
			if test.after >= 0 {
				if err := d.judge.Spent(t.Context(), a, test.after); err != nil {
					t.Error(err)
				}
			}
			d.judge.End(t.Context(), a)
			d.wantRemaining(test.want)
		})
	}
}

func TestACostThatHasNoEffectIsAnError(t *testing.T) {
	d := open(t, settling(func(*weir.Limiter) {}), answer.Options{})
	a, _ := d.ask(from("192.0.2.7", ""), chat)
	want := func(units int64, text string) {
		t.Helper()
		if err := d.judge.Spent(t.Context(), a, units); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("the error is %v, want %q", err, text)
		}
	}
	want(-1, "settle -1 units: 0 or more are allowed")
	if err := d.judge.Spent(t.Context(), a, 3); err != nil {
		t.Error(err)
	}
	want(4, "settle 4 units: the request is settled already, at 3")
	d.judge.Head(t.Context(), a, 200, head())
	d.judge.End(t.Context(), a)
	d.wantRemaining(97)

	q := chat
	q.Path = "/of/no/limiter"
	a, _ = d.ask(from("192.0.2.7", ""), q)
	want(3, "settle 3 units: nothing was charged that can be given back")
}

// A 401 is the judge's own answer: it ends a request that was admitted, and its status is counted
// like a backend's.
func TestARequestThatLacksACredentialIsSettledAtOnce(t *testing.T) {
	p := settling(func(l *weir.Limiter) {
		l.InFlight, l.Requires = inFlight(1), "session"
		l.Count = weir.Count{Statuses: []weir.Statuses{{Low: 403, High: 403}}}
	})
	d := open(t, p, answer.Options{})
	for range 3 {
		if a, fields := d.ask(from("192.0.2.7", ""), chat); a.Status != 401 || fields["X-RateLimit-Remaining"] != "100" {
			t.Errorf("the status is %d, and %s units are left", a.Status, fields["X-RateLimit-Remaining"])
		}
	}
}

// No response reports the cost of a request that the judge or its door answers: it is what was
// reserved, and not reported as unknown, so that strangers cannot cause an alert.
func TestARequestThatIsNotServedHasAKnownCost(t *testing.T) {
	for _, test := range []struct {
		name     string
		requires string
		public   bool
		status   int
		reports  int
	}{
		{"it lacks a credential", "session", false, 401, 0},
		{"the door answers", "session", true, 0, 0},
		{"a handler answers, and reports no cost", "", false, 0, 1},
	} {
		p := settling(func(l *weir.Limiter) {
			l.Requires, l.Actual = test.requires, weir.Reading{Form: weir.ReadJSON, Name: "usage.total"}
		})
		d := open(t, p, answer.Options{})
		store, err := memstore.New(memstore.Options{Now: d.clock.Now})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		reports := 0
		decider, err := weir.New(p, store, weir.Options{OnSettled: func(weir.Settled) { reports++ }})
		if err != nil {
			t.Fatal(err)
		}
		if d.judge, err = answer.New(decider, answer.Options{Identity: d.who}); err != nil {
			t.Fatal(err)
		}
		q := chat
		q.Public = test.public
		a, fields := d.ask(from("192.0.2.7", ""), q)
		if a.Status == 0 {
			d.judge.Head(t.Context(), a, 400, head("Content-Type: application/json"))
			fields = maps.Collect(a.Fields())
		}
		d.judge.End(t.Context(), a)
		if a.Status != test.status || reports != test.reports || fields["X-RateLimit-Remaining"] != "90" {
			t.Errorf("%s: status %d, %d costs reported as unknown, %s units left; want %d, %d, 90", test.name, a.Status, reports, fields["X-RateLimit-Remaining"], test.status, test.reports)
		}
		d.wantRemaining(90)
	}
}

// A 429 of the backend is counted by its status, and its fields refuse (D19).
func TestABackendsRefusalIsSettledToo(t *testing.T) {
	d := open(t, settling(func(l *weir.Limiter) {
		l.Count = weir.Count{Not: true, Statuses: []weir.Statuses{{Low: 429, High: 429}}}
	}), answer.Options{})
	a, _ := d.ask(from("192.0.2.7", ""), chat)
	d.judge.Head(t.Context(), a, 429, head())
	a.BackendRefused([]string{"7"})
	fields := maps.Collect(a.Fields())
	d.judge.End(t.Context(), a)
	if fields["X-RateLimit-Remaining"] != "0" || fields["Retry-After"] != "7" {
		t.Errorf("the fields are %q", fields)
	}
	d.wantRemaining(100)
}

// A door that forgets End does not keep a slot for ever, nor what the answer has told.
func TestTheNextUseOfAnAnswerEndsItsRequest(t *testing.T) {
	p := settling(func(l *weir.Limiter) {
		l.InFlight, l.Actual = inFlight(1), weir.Reading{Form: weir.ReadJSON, Name: "n"}
	})
	d := open(t, p, answer.Options{})
	var a answer.Answer
	d.askInto(from("192.0.2.7", ""), chat, &a)
	d.judge.Head(t.Context(), &a, 200, head("Content-Type: application/json"))
	d.judge.Read(&a, []byte(`{"n":3}`))
	q := chat
	q.Path = "/of/no/limiter"
	d.askInto(from("192.0.2.7", ""), q, &a)
	d.wantRemaining(97)
	if next, _ := d.ask(from("192.0.2.7", ""), chat); next.Status != 0 {
		t.Errorf("the status is %d", next.Status)
	}
}
