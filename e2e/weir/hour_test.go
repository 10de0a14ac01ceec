package weir

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// Contract, section 8: 30000 an hour per address, for any number of agents. 30
// agents spend their minutes of 1000 from one address; the 31st agent's first
// request is the 30001st of the hour.
func TestThe30001stInitOfAnHourIsRefused(t *testing.T) {
	t.Parallel() // one server does all of it
	s := serveWeir(t, "--access-log=off")
	var all sync.WaitGroup
	for lane := range 4 {
		all.Go(func() {
			client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}}
			for agent := lane; agent < 30; agent += 4 {
				c := initAs(fmt.Sprintf("agent-%d", agent))
				for n := range 1000 {
					answer, err := c.send(t.Context(), client, s.url)
					// Admitted: the backend does not know the agent.
					if err != nil || answer.status != http.StatusNotFound {
						t.Errorf("request %d of agent %d: status %d, %v; want it admitted", n+1, agent, answer.status, err)
						return
					}
				}
			}
		})
	}
	all.Wait()
	if t.Failed() {
		return
	}
	r := curl(t, "-X", "POST", s.url+"/api/v1/widget/init", "-H", "X-Agent-Id: agent-31")
	wantRefusal(t, r, 30000, time.Hour, widgetMessage)
	s.end(t)
}

func initAs(agent string) call {
	return call{method: http.MethodPost, path: "/api/v1/widget/init", body: "{}", header: map[string]string{"X-Agent-Id": agent}}
}

// If the hour refuses a request, it spends nothing of its agent's minute (D2, D3).
// The clock is an argument. At the last second of the hour the 31st agent is
// refused; at its reset the agent's minute is whole, and starts then.
func TestARefusalByTheHourLeavesTheMinuteUnspent(t *testing.T) {
	t.Parallel() // it has a handler of its own
	start := time.Unix(1_800_000_000, 0)
	now := start
	handler := openEdge(t, inProcess(t, contract(t), func() time.Time { return now })).Handler()
	send := func(agent string) reply {
		r := httptest.NewRequest(http.MethodPost, "/api/v1/widget/init", strings.NewReader("{}"))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Agent-Id", agent)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		answer := reply{status: w.Code, body: w.Body.String()}
		for name, values := range w.Result().Header {
			for _, value := range values {
				answer.fields = append(answer.fields, [2]string{name, value})
			}
		}
		return answer
	}
	for n := range 30000 {
		if r := send(fmt.Sprintf("agent-%d", n/1000)); r.status != http.StatusNotFound {
			t.Fatalf("request %d: status %d, want it admitted: %s", n+1, r.status, r.body)
		}
	}
	for _, at := range []time.Duration{0, 3599 * time.Second} {
		now = start.Add(at)
		r := send("agent-31")
		wantRefusal(t, r, 30000, time.Hour, widgetMessage)
		if got, want := r.integer(t, "X-RateLimit-Reset"), start.Unix()+3600; got != want {
			t.Errorf("%v into the hour: Reset is %d, want %d", at, got, want)
		}
	}
	now = start.Add(time.Hour)
	r := send("agent-31")
	wantStanding(t, r, 1000, 60)
	if r.status != http.StatusNotFound || r.integer(t, "X-RateLimit-Remaining") != 999 || r.integer(t, "X-RateLimit-Reset") != now.Unix()+60 {
		t.Errorf("at the hour's reset: %d %v; want it admitted with 999 remaining of a minute that begins now", r.status, r.fields)
	}
}
