package verify

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
)

// A settling is what the answers of a world's server have to do with what requests cost.
type settling struct {
	on       bool
	lag      time.Duration // of a store that settles after the answer, at most; 0: at once
	early    bool          // the backend does not read bodies
	statuses []int         // of answers, by chance
	costs    []string      // of X-Cost, by chance; "": without the field
	method   string        // that the backend knows; "": any
}

func (s *settling) decider(t *testing.T, p weir.Policy, dice *dice) *weir.Decider {
	if s.lag == 0 {
		return decider(t, p)
	}
	store, err := memstore.New(memstore.Options{Now: time.Now, Memory: memstore.MinMemory})
	if err != nil {
		t.Fatal(err)
	}
	d, err := weir.New(p, lagging{store, s.lag, dice}, weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// read reads a request's body unless the backend answers early.
func (s *settling) read(r *http.Request) {
	if s.on && !s.early {
		_, _ = io.Copy(io.Discard, r.Body) // a client that has left gets no answer
	}
}

// answer answers a request, and reports whether it has.
func (s *settling) answer(w http.ResponseWriter, r *http.Request, dice *dice) bool {
	if !s.on {
		return false
	}
	if cost := s.costs[dice.under(int64(len(s.costs)))]; cost != "" {
		w.Header().Set("X-Cost", cost)
		w.Header().Set("Content-Type", "application/json")
	}
	status := s.statuses[dice.under(int64(len(s.statuses)))]
	if !strings.HasPrefix(r.URL.Path, "/things") || strings.Contains(r.URL.Path, "weir-verify-nothing") {
		status = http.StatusNotFound
	}
	if s.method != "" && r.Method != s.method {
		status = http.StatusMethodNotAllowed
	}
	w.WriteHeader(status)
	if status >= 300 {
		_, _ = io.WriteString(w, `{"error":{"code":"no","message":"No."}}`)
		return true
	}
	_, _ = io.WriteString(w, `{"usage":{"units":`+fmt.Sprint(dice.under(5))+`}}`)
	return true
}

func drawSettling(t *rapid.T) world {
	keys := []string{"ip", "header:X-Team", "ip+header:X-Team", "header:X-Team", "everyone", "agent"}
	limit := rapid.IntRange(1, 60).Draw(t, "limit")
	key := rapid.SampledFrom(keys).Draw(t, "key")
	var b strings.Builder
	method := rapid.SampledFrom([]string{"POST ", "", "GET "}).Draw(t, "method")
	fmt.Fprintf(&b, "limiters:\n  - name: things\n    routes: [%s/things*]\n    chosen: yes\n", method)
	slots := rapid.Bool().Draw(t, "slots")
	if slots {
		fmt.Fprintf(&b, "    in_flight: %d by %s\n", rapid.IntRange(1, 9).Draw(t, "in flight"), rapid.SampledFrom(keys).Draw(t, "slot key"))
	}
	if !slots || rapid.IntRange(0, 3).Draw(t, "windows") > 0 {
		per := rapid.SampledFrom([]int{2, 7, 30}).Draw(t, "per")
		windows := fmt.Sprintf("%d per %d seconds by %s", limit, per, key)
		if rapid.IntRange(0, 2).Draw(t, "requests") == 0 {
			windows = fmt.Sprintf(`%d requests per %d seconds by %s", "%s`, rapid.IntRange(1, 60).Draw(t, "number"), per, key, windows)
		}
		fmt.Fprintf(&b, "    windows: [\"%s\"]\n", windows)
		reserve := rapid.IntRange(1, min(limit, 6)).Draw(t, "reserve")
		switch rapid.IntRange(0, 3).Draw(t, "cost") {
		case 0:
			fmt.Fprintf(&b, "    cost: {reserve: %d, from: \"header:X-Cost\"}\n", reserve)
		case 1:
			fmt.Fprintf(&b, "    cost: {reserve: %d, from: \"json:usage.units\"}\n", reserve)
		case 2:
			fmt.Fprintf(&b, "    cost: %d\n", reserve)
		}
		if count := rapid.SampledFrom([]string{"", "{status: [401, 403]}", "{not: [404]}", "{not: [5xx, 404]}", "{status: [2xx]}"}).Draw(t, "count"); count != "" {
			fmt.Fprintf(&b, "    count: %s\n", count)
		}
	}
	text := b.String()
	if !strings.Contains(text, "header:X-Team") && !strings.Contains(text, "agent") {
		text = strings.Replace(text, "    chosen: yes\n", "", 1)
	}
	return world{
		policy:  text,
		latency: time.Duration(rapid.SampledFrom([]int{0, 0, 3, 40}).Draw(t, "latency")) * time.Millisecond,
		losses:  rapid.SampledFrom([]int{0, 0, 0, 23}).Draw(t, "losses"),
		busy:    rapid.IntRange(0, 3).Draw(t, "busy") == 0,
		quick:   rapid.IntRange(0, 5).Draw(t, "quick") == 0,
		real:    rapid.Bool().Draw(t, "real"),
		workers: rapid.IntRange(1, 12).Draw(t, "workers"),
		settles: settling{
			on:       true,
			method:   strings.TrimSpace(method),
			lag:      time.Duration(rapid.SampledFrom([]int{0, 0, 2, 60}).Draw(t, "lag")) * time.Millisecond,
			early:    rapid.IntRange(0, 4).Draw(t, "early") == 0,
			statuses: rapid.SampledFrom([][]int{{200}, {422}, {401}, {404}, {200, 404}, {200, 200, 404}, {401, 200}, {503}, {200, 503}, {503, 401, 200}}).Draw(t, "statuses"),
			costs:    rapid.SampledFrom([][]string{{""}, {"0"}, {"3"}, {"1", "2", "9"}, {"2", "", "-1", "x"}}).Draw(t, "costs"),
		},
	}
}
