package replay

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/accesslog"
	"github.com/weirlimit/weir/internal/gateway"
)

// Weir's own log has a keyed hash of each segment that a window counts by. A replay counts by it.
func TestHiddenSegmentsOfWeirsOwnLogAreJudgedAsTheyWereLive(t *testing.T) {
	p := weir.Policy{Limiters: []weir.Limiter{
		routedBy(t, "keys", "2 per minute by ip+path:key", "/k/{key}/x", "/k/{key}"),
		routedBy(t, "one", "1 per minute by ip", "/k/demo/x"),
		routedBy(t, "rest", "9 per minute by ip", "/*"),
	}}
	targets := []string{"/k/alpha/x", "/K/Alpha/x", "/k/%61lpha/x", "/k//alpha/./x", "/k/alpha;v=1/x",
		"/k/beta", "/k/beta.json", "/k/be.ta/x", "/k/demo/x", "/k/%7Bkey%7D/x", "/k/a%20b/x", "/other"}
	refused := 0
	rapid.Check(t, func(t *rapid.T) {
		var all []asked
		at := time.Duration(0)
		for range rapid.IntRange(1, 60).Draw(t, "requests") {
			at += time.Duration(rapid.IntRange(1, 9000).Draw(t, "ms")) * time.Millisecond
			all = append(all, asked{at: at, peer: "192.0.2.1:1", method: "GET", target: rapid.SampledFrom(targets).Draw(t, "target")})
		}
		var log bytes.Buffer
		access := gateway.NewAccessLog(&log, gateway.LogText, slog.New(slog.DiscardHandler))
		live := serveLogged(t, p, all, access)
		if err := access.Close(); err != nil {
			t.Fatal(err)
		}
		text, numbers := atTheirTimes(t, log.String(), all, live)
		if strings.Contains(strings.ToLower(text), "alpha") {
			t.Fatalf("a segment that is counted by is in the log:\n%s", text)
		}
		got, out := replayed(t, Options{Policy: p, Forwarded: -1}, accesslog.Options{Stdin: strings.NewReader(text), Format: "weir"})
		moved := make(map[int64]judged, len(got))
		for line, v := range got {
			moved[numbers[line]] = v
		}
		compare(t, all, live, moved, out)
		refused += int(out.Policy.Refused)
	})
	if refused < 100 {
		t.Errorf("%d requests were refused: the traffic is too tame to judge", refused)
	}
}

// routedBy is limiterOf with routes of its own.
func routedBy(t *testing.T, name, window string, routes ...string) weir.Limiter {
	t.Helper()
	l := limiterOf(t, name, window)
	l.Routes = nil
	for _, text := range routes {
		r, err := weir.ParseRoute(text)
		if err != nil {
			t.Fatal(err)
		}
		l.Routes = append(l.Routes, r)
	}
	return l
}
