package answer_test

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/identity"
)

// reserving is a limiter whose requests tell by a field or by their body what they can cost.
func reserving(from weir.Reading) weir.Policy {
	return weir.Policy{Limiters: []weir.Limiter{{
		Name:    "tokens",
		Routes:  []weir.Route{{Method: "POST", Path: "/v1/chat"}},
		Windows: []weir.Window{{Limit: 100_000, Per: time.Hour, Key: weir.Key{{"ip"}}}},
		Cost:    8000,
		Reserve: weir.Reserve{From: from, Times: 2, Plus: 500},
	}}}
}

func TestARequestTellsWhatIsReservedForIt(t *testing.T) {
	field := weir.Reading{Form: weir.ReadHeader, Name: "X-Max-Cost"}
	for _, test := range []struct {
		name  string
		lines []string
		want  int64
	}{
		{"a number", []string{"1000"}, 2500},
		{"blanks around it", []string{" 7\t"}, 514},
		{"zero", []string{"0"}, 500},
		{"more than the limiter's cost", []string{"1000000"}, 8000},
		{"missing", nil, 8000},
		{"empty", []string{""}, 8000},
		{"sent twice", []string{"1", "1"}, 8000},
		{"two in one line", []string{"1, 1"}, 8000},
		{"negative", []string{"-1"}, 8000},
		{"signed", []string{"+1"}, 8000},
		{"a fraction", []string{"1.0"}, 8000},
		{"an exponent", []string{"1e3"}, 8000},
		{"hexadecimal", []string{"0x10"}, 8000},
		{"2^31", []string{"2147483648"}, 8000},
		{"2^63", []string{"9223372036854775808"}, 8000},
		{"other digits", []string{"١"}, 8000},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := open(t, reserving(field), answer.Options{})
			a, _ := d.ask(from("192.0.2.7", "X-Max-Cost", test.lines...), chat)
			if a.Decision.Cost != test.want {
				t.Errorf("the request is charged %d, want %d", a.Decision.Cost, test.want)
			}
		})
	}
}

// chat is the question for a request of reserving's route.
var chat = answer.Question{Method: "POST", Path: "/v1/chat"}

// An upload is a request with a JSON body.
type upload struct {
	*request
	body string
}

func (u upload) Body(limit int) []byte { return []byte(u.body)[:min(len(u.body), limit)] }

// A stalled request has a body that does not come.
type stalled struct {
	*request
	begun chan<- struct{}
	goOn  <-chan struct{}
}

func (s stalled) Body(int) []byte {
	s.begun <- struct{}{}
	<-s.goOn
	return nil
}

// Callers that send slowly cannot make a server wait for more than 64 MiB of bodies: the next one
// reserves the most, and is not read.
func TestBodiesThatAreWaitedForAreBounded(t *testing.T) {
	d := open(t, reserving(weir.Reading{Form: weir.ReadJSON, Name: "max_tokens"}), answer.Options{})
	json := func() *request { return from("192.0.2.7", "Content-Type", "application/json") }
	ask := func(r identity.Request) int64 {
		q, a := chat, new(answer.Answer)
		q.Caller = new(identity.Caller)
		d.who.Start(q.Caller, r)
		if err := d.judge.Answer(t.Context(), &q, a); err != nil {
			t.Error(err)
		}
		return a.Decision.Cost
	}
	small := upload{json(), `{"max_tokens":1000}`}
	begun, goOn := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	for range 64 << 20 / answer.MaxRequestRead {
		all.Go(func() { ask(stalled{json(), begun, goOn}) })
		<-begun
	}
	if cost := ask(small); cost != 8000 {
		t.Errorf("a body beyond the bound is read: %d are reserved, want 8000", cost)
	}
	close(goOn)
	all.Wait()
	d.clock.Advance(time.Hour)
	if cost := ask(small); cost != 2500 {
		t.Errorf("afterwards %d are reserved, want 2500", cost)
	}
}

func TestARequestsBodyTellsWhatIsReservedForIt(t *testing.T) {
	const body = `{"model":"m","max_tokens":1000}`
	long := body + strings.Repeat(" ", answer.MaxRequestRead-len(body))
	for _, test := range []struct {
		name, contentType, coding, length, body string
		want                                    int64
	}{
		{"a member", "application/json", "", "", body, 2500},
		{"with a charset", "application/json; charset=utf-8", "", "", body, 2500},
		{"as long as it may be", "application/json", "", strconv.Itoa(len(long)), long, 2500},
		{"one byte longer", "application/json", "", "", long + " ", 8000},
		{"declared longer", "application/json", "", "1000000", body, 8000},
		{"broken off", "application/json", "", "", body[:len(body)-1], 8000},
		{"followed by more", "application/json", "", "", body + body, 8000},
		{"twice in other letters", "application/json", "", "", `{"max_tokens":1000,"MAX_TOKENS":4000}`, 8000},
		{"compressed", "application/json", "gzip", "", body, 8000},
		{"another type", "text/plain", "", "", body, 8000},
		{"no body", "application/json", "", "", "", 8000},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := open(t, reserving(weir.Reading{Form: weir.ReadJSON, Name: "max_tokens"}), answer.Options{})
			u := upload{from("192.0.2.7", "Content-Type", test.contentType), test.body}
			if test.coding != "" {
				u.header["Content-Encoding"] = []string{test.coding}
			}
			if test.length != "" {
				u.header["Content-Length"] = []string{test.length}
			}
			q := chat
			q.Caller = new(identity.Caller)
			d.who.Start(q.Caller, u)
			var a answer.Answer
			if err := d.judge.Answer(t.Context(), &q, &a); err != nil {
				t.Fatal(err)
			}
			if a.Decision.Cost != test.want {
				t.Errorf("the request is charged %d, want %d", a.Decision.Cost, test.want)
			}
		})
	}
}

// A request that is refused whatever it costs is answered without its body, with the fields of the
// refusal, and charged nothing. One that lacks its credential is answered 401 without its body too,
// and charged the least.
func TestABodyIsNotReadForARefusal(t *testing.T) {
	p := reserving(weir.Reading{Form: weir.ReadJSON, Name: "max_tokens"})
	p.Limiters[0].Windows[0].Limit = 16_400
	open := func(t *testing.T, requires string) (ask func(authorization string) (*answer.Answer, bool)) {
		p := p
		p.Limiters = slices.Clone(p.Limiters)
		p.Limiters[0].Requires = requires
		d := open(t, p, answer.Options{})
		return func(authorization string) (*answer.Answer, bool) {
			r, reads := from("192.0.2.7", "Content-Type", "application/json"), 0
			if authorization == "session" {
				r.header["Authorization"] = []string{d.session("s1")}
			}
			q, a := chat, new(answer.Answer)
			q.Caller = new(identity.Caller)
			d.who.Start(q.Caller, watched{upload{r, `{"max_tokens":9000}`}, &reads})
			if err := d.judge.Answer(t.Context(), &q, a); err != nil {
				t.Fatal(err)
			}
			return a, reads > 0
		}
	}
	t.Run("429", func(t *testing.T) {
		ask := open(t, "")
		for i, want := range []struct {
			status    int
			read      bool
			remaining string
			cost      int64
		}{{0, true, "8400", 8000}, {0, true, "400", 8000}, {429, false, "0", 500}, {429, false, "0", 500}} {
			a, read := ask("")
			if a.Status != want.status || read != want.read || a.Values()[1] != want.remaining || a.Decision.Cost != want.cost {
				t.Errorf("request %d: %d, read %v, remaining %s, cost %d, want %+v", i, a.Status, read, a.Values()[1], a.Decision.Cost, want)
			}
			if w := a.Decision.Binding(); w.Count > 16_000 {
				t.Errorf("request %d: %d are charged", i, w.Count)
			}
		}
	})
	t.Run("401", func(t *testing.T) {
		ask := open(t, "session")
		if a, read := ask(""); a.Status != 401 || read || a.Decision.Cost != 500 {
			t.Errorf("without a session: %d, read %v, cost %d", a.Status, read, a.Decision.Cost)
		}
		if a, read := ask("session"); a.Status != 0 || !read || a.Decision.Cost != 8000 {
			t.Errorf("with a session: %d, read %v, cost %d", a.Status, read, a.Decision.Cost)
		}
	})
}
