package weir

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/memstore"
)

const costly = "../../examples/costly.yaml"

// A costlyEdge is the whole edge under examples/costly.yaml, with the sample
// backend and a clock that the test sets.
type costlyEdge struct {
	*testing.T
	handler http.Handler
	mu      sync.Mutex
	now     time.Time
}

func newCostlyEdge(t *testing.T) *costlyEdge {
	c := &costlyEdge{T: t, now: time.Unix(1_800_000_000, 0)}
	c.handler = openEdge(t, inProcess(t, parsed(t, readText(t, costly)), c.clock)).Handler()
	return c
}

func (c *costlyEdge) clock() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *costlyEdge) wait(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func (c *costlyEdge) post(path, session, body string) reply {
	return c.postFrom("192.0.2.1:4711", path, session, body)
}

func (c *costlyEdge) postFrom(peer, path, session, body string) reply {
	r := httptest.NewRequest(http.MethodPost, "/api/v1/widget/"+path, strings.NewReader(body))
	r.RemoteAddr = peer
	r.Header.Set("Content-Type", "application/json")
	if session != "" {
		r.Header.Set("Authorization", "Bearer "+session)
	}
	w := httptest.NewRecorder()
	c.handler.ServeHTTP(w, r)
	answer := reply{status: w.Code, body: w.Body.String()}
	for name, values := range w.Result().Header {
		for _, value := range values {
			answer.fields = append(answer.fields, [2]string{name, value})
		}
	}
	return answer
}

func (c *costlyEdge) session() string {
	c.Helper()
	var made struct{ Token string }
	if r := c.post("init", "", `{"agent_id":"demo"}`); json.Unmarshal([]byte(r.body), &made) != nil || made.Token == "" {
		c.Fatalf("init: %d %s", r.status, r.body)
	}
	return made.Token
}

// everyone sends so many messages at once from every session. It returns how many
// were admitted, even if the backend answered with an error (D5).
func (c *costlyEdge) everyone(sessions []string, times int) (admitted int) {
	var all sync.WaitGroup
	answers := make([]reply, len(sessions)*times)
	for i := range answers {
		all.Go(func() { answers[i] = c.post("messages", sessions[i%len(sessions)], `{"text":"hello"}`) })
	}
	all.Wait()
	for _, r := range answers {
		switch r.status {
		case http.StatusCreated, http.StatusServiceUnavailable:
			// The backend answers 503 if SQLite is on a slow disk.
			admitted++
		case http.StatusTooManyRequests:
			wantRefusal(c.T, r, 600, time.Minute, widgetMessage)
		default:
			c.Errorf("status %d: %s", r.status, r.body)
		}
	}
	return admitted
}

// A budget of 600 for everyone and messages of cost 10 admit exactly 60, from any
// number of sessions at once. The other endpoints are not affected (D7).
func TestSixtyMessagesAMinuteReachTheModel(t *testing.T) {
	c := newCostlyEdge(t)
	var sessions []string
	for range 20 {
		sessions = append(sessions, c.session())
	}
	for range 30 { // a refused request spends nothing (D16)
		if r := c.postFrom("198.51.100.9:4711", "messages", "", `{"text":"hello"}`); r.status != http.StatusUnauthorized && r.status != http.StatusTooManyRequests {
			t.Fatalf("without a session: status %d", r.status)
		}
	}
	for minute := range 2 {
		if n := c.everyone(sessions, 8); n != 60 {
			t.Errorf("minute %d: %d messages of 160 were admitted, want 60", minute+1, n)
		}
		wantRefusal(t, c.post("messages", sessions[0], `{"text":"the 61st"}`), 600, time.Minute, widgetMessage)
		for _, s := range sessions {
			r := c.post("leads", s, `{"email":"ada@example.com"}`)
			wantStanding(t, r, 30, 60)
			if r.status == http.StatusTooManyRequests || r.integer(t, "X-RateLimit-Remaining") != 29 {
				t.Errorf("a lead in the same minute: status %d, %v", r.status, r.fields)
			}
		}
		c.wait(time.Minute)
	}
}

// One visitor may send ten messages. A request that its own window refuses spends
// nothing of the shared budget (D3).
func TestOneSessionCannotSpendTheSharedBudget(t *testing.T) {
	c := newCostlyEdge(t)
	greedy, other := c.session(), c.session()
	for n := range int64(10) {
		r := c.post("messages", greedy, `{"text":"hello"}`)
		wantStanding(t, r, 100, 60)
		if got := r.integer(t, "X-RateLimit-Remaining"); got != 90-10*n {
			t.Errorf("message %d: %d remaining, want %d", n+1, got, 90-10*n)
		}
	}
	for range 50 {
		wantRefusal(t, c.post("messages", greedy, `{"text":"hello"}`), 100, time.Minute, widgetMessage)
	}
	if n := c.everyone([]string{c.session(), c.session(), c.session(), c.session(), c.session(), other}, 9); n != 50 {
		t.Errorf("%d messages were left for the others, want 50", n)
	}
}

// If a cost does not fit, the request is refused with Remaining 0, though a cheaper
// request may still be admitted (D4, D7).
func TestACheaperRequestFitsWhereACostlyOneDoesNot(t *testing.T) {
	policy := parsed(t, readText(t, costly))
	store, err := memstore.New(memstore.Options{Now: func() time.Time { return time.Unix(1_800_000_000, 0) }})
	if err != nil {
		t.Fatal(err)
	}
	d, err := weir.New(policy.Policy, store, weir.Options{Sources: identity.Sources()})
	if err != nil {
		t.Fatal(err)
	}
	for i, step := range []struct {
		cost      int64
		allowed   bool
		remaining int64
		// 0 is the limiter's own cost: 10.
	}{{95, true, 5}, {0, false, 0}, {weir.Peek, true, 5}, {5, true, 0}, {1, false, 0}} {
		r := weir.Request{Method: "POST", Path: "/api/v1/widget/messages", Keys: oneVisitor{}, Cost: step.cost}
		got, err := d.Decide(context.Background(), r)
		if err != nil || got.Allowed != step.allowed || got.Binding().Remaining != step.remaining {
			t.Errorf("step %d, cost %d: allowed %v, %d remaining, %v; want %v, %d", i+1, step.cost, got.Allowed, got.Binding().Remaining, err, step.allowed, step.remaining)
		}
	}
}

type oneVisitor struct{}

func (oneVisitor) AppendKey(dst []byte, source string) ([]byte, bool) {
	return append(dst, source...), true
}
