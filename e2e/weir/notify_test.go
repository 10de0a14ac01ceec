package weir

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir/e2e/redistest"
)

const toldPolicy = `limiters:
  - {name: field, routes: [/field], windows: ["1000 per day by ip"], cost: {from: "header:X-Cost"}, notify: [75, 90, 100]}
  - {name: body, routes: [/body], windows: ["1000 per day by ip"], cost: {from: "json:usage.total_tokens"}, notify: [75, 90, 100]}
  - {name: reserved, routes: [/reserved], windows: ["1000 per day by ip"], cost: {from: "header:X-Cost", reserve: 300}, notify: [75, 90, 100]}
  - {name: failed, routes: [/failed], windows: ["4 per day by ip"], count: {status: [401]}, notify: [75]}
`

// telling answers requests with what they cost.
func telling(t *testing.T) string {
	t.Helper()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/field":
			w.Header().Set("X-Cost", "200")
		case "/reserved":
			w.Header().Set("X-Cost", "20")
		case "/body":
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"usage":{"total_tokens":200}}`)
		}
	}))
	t.Cleanup(upstream.Close)
	return upstream.URL
}

// percentages are the events of a server's log, such as "field 75".
func percentages(s *server) (all []string) {
	line := regexp.MustCompile(`msg="a limit is used to a percentage".* limiter=(\w+) .* percent=(\d+) `)
	for _, m := range line.FindAllStringSubmatch(s.stderr.String(), -1) {
		all = append(all, m[1]+" "+m[2])
	}
	return all
}

// What the answer reports as used reaches a percentage, and what is only reserved does not.
func TestPercentagesAreReachedByWhatAnswersReport(t *testing.T) {
	for name, servers := range map[string]int{"memory": 1, "two servers on one Redis": 2, "two servers that lease": 2} {
		t.Run(name, func(t *testing.T) {
			args := []string{"--policy", policyFile(t, toldPolicy), "--upstream", telling(t), "--access-log=off"}
			if servers > 1 {
				args = append(args, "--store", redistest.Start(t).URL(), patient)
			}
			if strings.Contains(name, "lease") {
				args = append(args, "--leases", "auto")
			}
			var all []*server
			for range servers {
				all = append(all, serveWeir(t, args...))
			}
			ask := func(path string, times int) {
				for i := range times {
					response, err := http.Get(all[i%servers].url + path)
					if err != nil {
						t.Fatal(err)
					}
					_, _ = io.Copy(io.Discard, response.Body)
					_ = response.Body.Close()
				}
			}
			ask("/field", 8)
			ask("/body", 8)
			ask("/reserved", 20)
			ask("/failed", 10)
			var got []string
			for _, s := range all {
				s.end(t)
				got = append(got, percentages(s)...)
			}
			slices.Sort(got)
			if want := "[body 100 body 75 body 90 field 100 field 75 field 90]"; fmt.Sprint(got) != want {
				t.Errorf("reported %v, want %v", got, want)
			}
		})
	}
}
