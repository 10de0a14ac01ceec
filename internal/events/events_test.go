package events_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/events"
	"github.com/weirlimit/weir/internal/logtest"
	"github.com/weirlimit/weir/memstore"
)

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// A receiver is a webhook without a network. It answers what answer returns for each attempt.
type receiver struct {
	answer func(try int) (status int, retryAfter string, err error)
	handle http.Handler // nil: none; it verifies the request first

	mu     sync.Mutex
	tries  int
	ids    []string
	bodies []string
	times  []time.Time
}

func (r *receiver) RoundTrip(q *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tries++
	r.ids, r.times, r.bodies = append(r.ids, q.Header.Get("webhook-id")), append(r.times, time.Now()), append(r.bodies, string(body))
	status, after, err := r.answer(r.tries)
	if err != nil {
		return nil, err
	}
	if r.handle != nil {
		w := httptest.NewRecorder()
		q.Body = io.NopCloser(bytes.NewReader(body))
		if r.handle.ServeHTTP(w, q); w.Code != http.StatusOK {
			status = w.Code
		}
	}
	return &http.Response{StatusCode: status, Header: http.Header{"Retry-After": {after}, "Location": {"https://elsewhere.example.com/"}}, Body: http.NoBody, Request: q}, nil
}

func accepts(int) (int, string, error) { return 200, "", nil }

// A rig is a Sender in a bubble of synthetic time.
type rig struct {
	*testing.T
	*events.Sender
	log logtest.Buffer
}

func open(t *testing.T, r *receiver) *rig {
	t.Helper()
	g := &rig{T: t}
	o := events.Options{Secret: secret, Key: func() []byte { return make([]byte, 32) }, Random: rand.Reader,
		Log: slog.New(slog.NewTextHandler(&g.log, nil))}
	if r != nil {
		o.URL, o.Transport = &url.URL{Scheme: "https", Host: "hooks.example.com", RawQuery: "token=swordfish"}, r
	}
	var err error
	if g.Sender, err = events.New(o); err != nil {
		t.Fatal(err)
	}
	return g
}

func (g *rig) want(totals map[string]int64) {
	g.Helper()
	got := g.Totals()
	for result, n := range got {
		if n != totals[result] {
			g.Errorf("%s: %d, want %d; all: %v", result, n, totals[result], got)
		}
	}
}

func (g *rig) close(within time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	_ = g.Close(ctx)
}

// crossing returns the crossing of the nth caller.
func crossing(n int) weir.Crossed {
	key, err := weir.ParseKey("token or ip")
	if err != nil {
		panic(err)
	}
	l := &weir.Limiter{Name: "api", Windows: []weir.Window{{Limit: 100, Per: time.Minute, Key: key}}}
	d := &weir.Decision{Allowed: true, Now: 1800000000}
	return weir.Crossed{
		Standing: &weir.Standing{Limiter: l, Window: &l.Windows[0], Limit: 100, Count: 75, Remaining: 25, Reset: 1800000060},
		Percent:  75, Decision: d, Who: fmt.Appendf(nil, "caller %d", n), Keys: address(fmt.Sprintf("192.0.2.%d", n)),
	}
}

type address string

func (a address) AppendKey(dst []byte, source string) ([]byte, bool) {
	return append(dst, a...), source == "ip"
}

func TestAnEventIsSignedAndNamesNoAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handled := ""
		r := &receiver{answer: accepts, handle: receive(secret, func(_ string, event []byte) { handled = string(event) })}
		g := open(t, r)
		g.Crossed(crossing(7))
		synctest.Wait()
		g.close(time.Second)
		g.want(map[string]int64{"logged": 1, "delivered": 1})
		var e events.Event
		if err := json.Unmarshal([]byte(handled), &e); err != nil {
			t.Fatalf("%q: %v", handled, err)
		}
		hash := e.Data.Caller.Hash
		const want = `{"type":"limit.reached","timestamp":"2027-01-15T08:00:00Z","data":{"limiter":"api","window":"100 per minute by token or ip","per_seconds":60,` +
			`"percent":75,"limit":100,"used":75,"remaining":25,"reset":1800000060,"reset_time":"2027-01-15T08:01:00Z","shadow":false,"local":false,"caller":{"counted_by":"ip","hash":"%s"}}}`
		if handled != fmt.Sprintf(want, hash) || len(hash) != 16 {
			t.Errorf("the event is\n%s", handled)
		}
		for _, line := range []string{"percent=75", "limiter=api", hash} {
			if !strings.Contains(g.log.String(), line) {
				t.Errorf("the log lacks %s: %s", line, &g.log)
			}
		}
		for _, private := range []string{"192.0.2.7", "caller 7", "swordfish", "MfKQ"} {
			if strings.Contains(handled+g.log.String(), private) {
				t.Errorf("%s is shown: %s %s", private, handled, &g.log)
			}
		}
	})
}

// An event that was changed on its way, or signed with another secret, is not
// accepted: the receiver of the documentation works.
func TestAReceiverWithAnotherSecretRejects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answer: accepts, handle: receive("whsec_AAAA9r8GKYqrTwjUPD8ILPZIo2LaLaSw", func(string, []byte) { t.Error("handled") })}
		g := open(t, r)
		g.Crossed(crossing(1))
		synctest.Wait()
		g.close(time.Second)
		g.want(map[string]int64{"logged": 1, "rejected": 1})
	})
}

// A public token id is shown, because the operator knows the caller by it: one of 'weir token
// create', and one of a token file, which may have dots.
func TestATokensPublicIDIsShown(t *testing.T) {
	for _, id := range []string{"3fk2mq7a4c", "acme.prod_EU-1"} {
		synctest.Test(t, func(t *testing.T) {
			r := &receiver{answer: accepts}
			g := open(t, r)
			c := crossing(1)
			c.Keys = token(id)
			g.Crossed(c)
			synctest.Wait()
			g.close(time.Second)
			if !strings.Contains(r.bodies[0], `"caller":{"counted_by":"token","token":"`+id+`","hash":"`) {
				t.Errorf("got %s", r.bodies[0])
			}
		})
	}
}

type token string

func (s token) AppendKey(dst []byte, source string) ([]byte, bool) {
	return append(dst, s...), source == "token"
}

// The same crossing is sent once, and another process gives it the same id.
func TestACrossingThatComesBackIsSentOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := &receiver{answer: accepts}, &receiver{answer: accepts}
		g, other := open(t, one), open(t, two)
		for range 3 {
			g.Crossed(crossing(1))
		}
		other.Crossed(crossing(1))
		next := crossing(1)
		next.Standing.Reset += 60 // the next window
		g.Crossed(next)
		higher := crossing(1)
		higher.Percent = 90
		g.Crossed(higher)
		synctest.Wait()
		g.close(time.Second)
		other.close(time.Second)
		g.want(map[string]int64{"logged": 3, "delivered": 3, "repeated": 2})
		ids := map[string]bool{}
		for _, id := range one.ids {
			ids[id] = true
		}
		if len(ids) != 3 || !ids[two.ids[0]] {
			t.Errorf("ids %q, of another process %q", one.ids, two.ids)
		}
	})
}

func TestAnEventIsRetriedWithOneIDUntilItIsAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answer: func(try int) (int, string, error) {
			switch try {
			case 1:
				return 0, "", errors.New("connection refused")
			case 2:
				return 503, "", nil
			case 3:
				return 429, "100", nil
			}
			return 204, "", nil
		}}
		g := open(t, r)
		g.Crossed(crossing(1))
		time.Sleep(5 * time.Minute)
		g.close(time.Second)
		g.want(map[string]int64{"logged": 1, "delivered": 1})
		if r.tries != 4 || r.ids[0] == "" || r.ids[0] != r.ids[3] {
			t.Fatalf("%d attempts, ids %q", r.tries, r.ids)
		}
		for i, bounds := range [][2]time.Duration{{500 * time.Millisecond, 1501 * time.Millisecond}, {time.Second, 3001 * time.Millisecond}, {100 * time.Second, 100 * time.Second}} {
			if pause := r.times[i+1].Sub(r.times[i]); pause < bounds[0] || pause > bounds[1] {
				t.Errorf("the pause before attempt %d is %v, want %v", i+2, pause, bounds)
			}
		}
	})
}

func TestARefusalForGoodAndARedirectAreNotRetried(t *testing.T) {
	for _, status := range []int{301, 307, 400, 401, 404, 410} {
		synctest.Test(t, func(t *testing.T) {
			r := &receiver{answer: func(int) (int, string, error) { return status, "", nil }}
			g := open(t, r)
			g.Crossed(crossing(1))
			time.Sleep(time.Hour)
			g.close(time.Second)
			g.want(map[string]int64{"logged": 1, "rejected": 1})
			if r.tries != 1 {
				t.Errorf("%d: %d attempts", status, r.tries)
			}
		})
	}
}

// A dead receiver bounds memory and time: what does not fit is counted, and a line a
// minute reports it.
func TestADeadReceiverLosesBoundedAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const all = 10_000
		r := &receiver{answer: func(int) (int, string, error) { return 0, "", errors.New("connection refused") }}
		g := open(t, r)
		for i := range all {
			g.Crossed(crossing(i))
			if i%500 == 0 {
				synctest.Wait() // the queue for the log is not what is tested here
			}
		}
		synctest.Wait()
		if dropped := g.Totals()["dropped"]; dropped != all-4096-8 {
			t.Errorf("%d dropped, want all but the outbox and those under way", dropped)
		}
		time.Sleep(61 * time.Second)
		if n := strings.Count(g.log.String(), "events did not reach the webhook"); n != 1 || !strings.Contains(g.log.String(), "dropped=5896") {
			t.Errorf("%d lines in a minute", n)
		}
		if n := strings.Count(g.log.String(), "a limit is used"); n != 20 {
			t.Errorf("%d lines in one second", n)
		}
		time.Sleep(10 * time.Minute)
		if expired := g.Totals()["expired"]; expired < 8 || expired > 100 {
			t.Errorf("%d expired in ten minutes", expired)
		}
		g.close(time.Second)
		totals := g.Totals()
		if sum := totals["dropped"] + totals["expired"] + totals["unsent"] + totals["delivered"]; sum != all {
			t.Errorf("%d of %d events are accounted for: %v", sum, all, totals)
		}
		if strings.Contains(g.log.String(), "swordfish") {
			t.Error("the URL's query is in the log")
		}
	})
}

// What waits for a retry when the server ends is sent once more.
func TestCloseSendsWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := false
		r := &receiver{answer: func(int) (int, string, error) {
			if !up {
				return 503, "300", nil
			}
			return 200, "", nil
		}}
		g := open(t, r)
		for i := range 100 {
			g.Crossed(crossing(i))
		}
		synctest.Wait()
		r.mu.Lock()
		up = true
		r.mu.Unlock()
		before := time.Now()
		g.close(5 * time.Second)
		if time.Since(before) != 0 {
			t.Errorf("it waited %v", time.Since(before))
		}
		g.Crossed(crossing(1000)) // too late
		g.want(map[string]int64{"logged": 20, "unlogged": 80, "delivered": 100, "unsent": 1})
	})
}

// A receiver that answers nothing does not hold the end of the server.
func TestCloseEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := open(t, nil)
		g.close(time.Second)
		hang := hanging{}
		s, err := events.New(events.Options{URL: &url.URL{Scheme: "https", Host: "h"}, Secret: secret, Key: func() []byte { return nil },
			Random: rand.Reader, Transport: hang, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			s.Crossed(crossing(i))
		}
		synctest.Wait()
		before := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_ = s.Close(ctx)
		if took := time.Since(before); took > 2*time.Second {
			t.Errorf("it took %v", took)
		}
		if n := s.Totals()["unsent"]; n != 100 {
			t.Errorf("%v", s.Totals())
		}
	})
}

type hanging struct{}

func (hanging) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func TestWithoutAURLEventsGoToTheLogOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := open(t, nil)
		c := crossing(1)
		c.Shadow, c.Keys = true, nil
		g.Crossed(c)
		synctest.Wait()
		g.close(time.Second)
		g.want(map[string]int64{"logged": 1})
		if !strings.Contains(g.log.String(), "mode=shadow") {
			t.Errorf("the log: %s", &g.log)
		}
	})
}

func TestABadSecretIsRejectedAndNotShown(t *testing.T) {
	for _, bad := range []string{"", "whsec_", "whsec_short", "whsec_" + strings.Repeat("A", 200), "not base64 at all, but long enough"} {
		_, err := events.New(events.Options{URL: &url.URL{Scheme: "https", Host: "h"}, Secret: bad, Random: rand.Reader, Log: slog.New(slog.DiscardHandler)})
		if !errors.Is(err, events.ErrSecret) || bad != "" && strings.Contains(err.Error(), bad) && bad != "whsec_" {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// A decider's crossings reach the sender as they are.
func TestADecidersCrossingsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answer: accepts}
		g := open(t, r)
		store, err := memstore.New(memstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		w, err := weir.ParseWindow("4 per minute by ip")
		if err != nil {
			t.Fatal(err)
		}
		d, err := weir.New(weir.Policy{Limiters: []weir.Limiter{{Name: "l", Windows: []weir.Window{w}, Notify: []int64{75, 100}}}}, store, weir.Options{OnCrossed: g.Crossed})
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			if _, err := d.Decide(t.Context(), weir.Request{Limiters: []string{"l"}, Keys: address("192.0.2.1")}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		g.close(time.Second)
		g.want(map[string]int64{"logged": 2, "delivered": 2})
	})
}
