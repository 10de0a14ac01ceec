package gateway

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
)

// fakeHash replaces the keyed hash of cmd/weir.
func fakeHash(agent string) (uint64, bool) {
	hash := uint64(14695981039346656037)
	for i := range len(agent) {
		hash = (hash ^ uint64(agent[i])) * 1099511628211
	}
	return hash, true
}

// agentPolicy counts /by/agent* by agent, with two requests each, /by/address* by
// address, and /tried* in a trial by agent.
func agentPolicy(t testing.TB) weir.Policy {
	t.Helper()
	limiter := func(name, route, window string) weir.Limiter {
		r, err := weir.ParseRoute(route)
		if err != nil {
			t.Fatal(err)
		}
		w, err := weir.ParseWindow(window)
		if err != nil {
			t.Fatal(err)
		}
		return weir.Limiter{Name: name, Routes: []weir.Route{r}, Windows: []weir.Window{w}}
	}
	tried := limiter("tried", "/tried*", "1 per hour by agent")
	tried.Mode = weir.Shadow
	return weir.Policy{Limiters: []weir.Limiter{limiter("a", "/by/agent*", "2 per hour by ip+agent"), limiter("b", "/by/address*", "9 per hour by ip"), tried}}
}

// If a limiter has used the agent, the access log has its hash, even if the request
// was refused, on both engines. The log itself never reads a body for the agent.
func TestTheAccessLogHasTheHashOfACountedAgent(t *testing.T) {
	o := newOrigin(t, func(s *served) {
		for r := s.request(); r != nil; r = s.request() {
			_, _ = io.Copy(io.Discard, r.Body)
			s.answers("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
	})
	e := open(t, nil, func(opts *Options) {
		o.use(opts)
		opts.Decider, opts.ValueHash = testDecider(t, agentPolicy(t)), fakeHash
	})
	body := `{"agent_id":"demo"}`
	for range 3 { // the third is refused
		e.send("POST /by/agent/1 HTTP/1.1\r\nHost: h\r\nConnection: close\r\nUser-Agent: curl\r\nContent-Type: application/json\r\nContent-Length: 19\r\n\r\n" + body)
	}
	e.ask("GET /by/agent/2", "User-Agent: curl")
	e.ask("GET /by/agent/3")
	e.ask("GET /by/address", "User-Agent: curl")
	e.ask("GET /nowhere", "User-Agent: curl")
	e.ask("GET /tried", "User-Agent: curl")
	e.stop()
	got := map[string][]string{}
	for line := range strings.Lines(e.access.String()) {
		_, path, _ := strings.Cut(line, " path=")
		path, _, _ = strings.Cut(path, " ")
		_, agent, _ := strings.Cut(line, " agent=")
		agent, _, _ = strings.Cut(agent, " ")
		got[path] = append(got[path], agent)
	}
	hash := func(agent string) string {
		sum, _ := fakeHash(agent)
		return fmt.Sprintf("%016X", sum)
	}
	for path, want := range map[string]string{
		"/by/agent/1": strings.Join([]string{hash("demo"), hash("demo"), hash("demo")}, " "),
		"/by/agent/2": hash("curl"), "/by/agent/3": hash(""), "/by/address": "", "/nowhere": "", "/tried": hash("curl"),
	} {
		t.Run(path, func(t *testing.T) {
			if strings.Join(got[path], " ") != want {
				t.Errorf("%s: %q, want %s", path, got[path], want)
			}
		})
	}
	if log := e.access.String(); strings.Contains(log, "demo") || strings.Contains(log, "curl") || !strings.Contains(log, "outcome=refused") {
		t.Errorf("access log:\n%s", log)
	}
}

// If the hash's key is unknown, or there is no hash function, the log has no agent.
func TestAnAgentWithoutAKeyIsNotLogged(t *testing.T) {
	for _, hash := range []func(string) (uint64, bool){nil, func(string) (uint64, bool) { return 0, false }} {
		e := open(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), func(o *Options) {
			o.Decider, o.ValueHash = testDecider(t, agentPolicy(t)), hash
		})
		e.ask("GET /by/agent/2", "User-Agent: curl")
		e.stop()
		if log := e.access.String(); !strings.Contains(log, "limiter=a outcome") {
			t.Errorf("access log %q", log)
		}
	}
}
