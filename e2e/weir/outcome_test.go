package weir

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/gateway"
)

const outcomes = `limiters:
  - name: closed
    routes: [/closed*]
    windows: [3 per minute by token or ip]
    requires: token
    count: {not: [404]}
  - name: open
    routes: [/open*]
    windows: [3 per minute by token or ip]
    requires: token
    count: {not: [4xx]}
  - name: failing
    routes: [/failing*]
    windows: [3 per minute by ip]
    count: {not: [5xx]}
  - name: failures
    routes: [/failures*]
    windows: [3 per minute by ip]
    count: {status: [502]}
`

// docs/policy.md: the 502 of a gateway whose backend does not answer is an outcome, and so is the
// 401 of a limiter that requires a credential.
func TestAnOutcomeIsTheStatusThatTheCallerGets(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	at, err := url.Parse(gone.URL)
	if err != nil {
		t.Fatal(err)
	}
	for name, engine := range map[string]gateway.Engine{"fast": gateway.EngineAuto, "std": gateway.EngineStd} {
		t.Run(name, func(t *testing.T) {
			c := inProcess(t, parsed(t, outcomes), func() time.Time { return time.Unix(1_800_000_000, 0) })
			c.Sites, c.TokenFile, c.Engine = gateway.To(at), filepath.Join(t.TempDir(), "tokens"), engine
			if err := os.WriteFile(c.TokenFile, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			server := runEdge(t, openEdge(t, c))
			for path, want := range map[string]string{
				"/closed":   "401 401 401 429 429 ",
				"/open":     "401 401 401 401 401 ",
				"/failing":  "502 502 502 502 502 ",
				"/failures": "502 502 502 429 429 ",
			} {
				got := ""
				for range 5 {
					response, err := http.Get(server + path)
					if err != nil {
						t.Fatal(err)
					}
					response.Body.Close()
					got += fmt.Sprint(response.StatusCode, " ")
				}
				if got != want {
					t.Errorf("%s is answered %s, want %s", path, got, want)
				}
			}
		})
	}
}
