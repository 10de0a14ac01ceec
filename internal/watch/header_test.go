package watch_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/watch"
)

// The dashboard's callers and refusals have a keyed hash of the value of a field, and its name.
func TestTheValueOfAFieldIsNotShown(t *testing.T) {
	c := newClock()
	r := newRecorder(t, c.now)
	desk := newDesk(t, c.now, weir.Limiter{Name: "ask", Windows: []weir.Window{window(t, 1, "minute", "header:X-Api-Key or ip")}})
	for range 3 {
		// Has the form of a token's id.
		r.Observe(desk.of("ask", keys{"header:X-Api-Key": "abcdefgh27", "ip": "192.0.2.7"}, 0))
		r.Observe(desk.of("ask", keys{"ip": "192.0.2.7"}, 0))
	}
	s := r.Snapshot(watch.Query{Top: 100})
	text, err := json.Marshal(s)
	if err != nil || strings.Contains(string(text), "abcdefgh27") {
		t.Errorf("%v: the value is shown:\n%s", err, text)
	}
	kinds := make(map[string]int)
	for _, caller := range limiter(t, s, "ask").Spending {
		kinds[caller.Kind+" "+caller.Name]++
	}
	if fmt.Sprint(kinds) != fmt.Sprint(map[string]int{"header:X-Api-Key ": 1, "ip ": 1}) {
		t.Errorf("kinds and names %v", kinds)
	}
}
