package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
)

// A segment of the path that a window counts by can be a secret, such as an API key. The access log
// has its keyed hash, with either engine, also of a request that is refused.
func TestTheAccessLogHidesASegmentThatIsCountedBy(t *testing.T) {
	w, err := weir.ParseWindow("2 per hour by ip+path:key")
	if err != nil {
		t.Fatal(err)
	}
	p := weir.Policy{Limiters: []weir.Limiter{{Name: "keys", Routes: []weir.Route{{Path: "/k/{key}/x"}}, Windows: []weir.Window{w}}}}
	sum, _ := fakeHash("sk_live_secretkey123")
	for name, use := range map[string]func(*testing.T, *Options){
		"std": func(*testing.T, *Options) {},
		"upstream": func(t *testing.T, o *Options) {
			newOrigin(t, func(s *served) {
				for r := s.request(); r != nil; r = s.request() {
					s.answers("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				}
			}).use(o)
		},
	} {
		for _, keyed := range []bool{true, false} {
			e := open(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), func(o *Options) {
				if o.Decider = testDecider(t, p); keyed {
					o.ValueHash = fakeHash
				}
				use(t, o)
			})
			for range 3 { // the last is refused
				e.ask("GET /k/sk_live_SECRETKEY123/x?q=1")
			}
			e.ask("GET /other/Path")
			e.stop()
			want := " path=/k/{key}/x "
			if keyed {
				want = fmt.Sprintf(" path=/k/{key:%016X}/x ", sum)
			}
			log := e.access.String()
			if strings.Contains(strings.ToLower(log), "secret") || strings.Count(log, want) != 3 || !strings.Contains(log, " path=/other/Path ") || !strings.Contains(log, "outcome=refused") {
				t.Errorf("%s: access log, want 3 of %s:\n%s", name, want, log)
			}
		}
	}
}
