package gateway

import (
	"fmt"
	"io"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
)

// Values that vary between runs.
var passing = regexp.MustCompile(` ?(time|duration|ts)=\S+|^\S+Z `)

// An observer collects observations.
type observer struct {
	mu   sync.Mutex
	seen []string
}

func (l *observer) observe(o answer.Observation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = append(l.seen, fmt.Sprintf("%v %v", o.Limiter, o.Outcome))
}

// The engines give the same answers, access logs and observations, for each kind of
// answer: admitted, refused in the caller's language, refused by the gateway,
// failed upstream; with the fields of the drafts, denial ids and cross-origin
// fields.
func TestBothEnginesGiveTheSameAnswersAndLogs(t *testing.T) {
	o := newOrigin(t, func(s *served) {
		for r := s.request(); r != nil; r = s.request() {
			_, _ = io.Copy(io.Discard, r.Body)
			switch r.URL.Path {
			case "/v1/wp/broken":
				return
			case "/v1/wp/nonsense":
				s.answers("nonsense\r\n\r\n")
				return
			case "/v1/wp/missing":
				s.answers("HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\nContent-Type: text/plain\r\n\r\nnone")
			case "/v1/wp/busy":
				s.answers("HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n")
			default:
				body := "ok"
				if r.Method == "HEAD" {
					body = ""
				}
				s.answers("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Heard: %s|%s|%s\r\n\r\n%s", strings.Join(r.Header["X-Forwarded-For"], ","), r.Header.Get("X-Forwarded-Proto"), r.Host, body)
			}
		}
	})
	forwarded := "X-Forwarded-For: 203.0.113.7"
	requests := [][]string{
		{"GET /v1/wp/x?secret=1", forwarded, "X-Forwarded-Proto: https"},
		{"GET /v1/wp/x", "X-Forwarded-For: 203.0.113.8, 127.0.0.3"},
		{"HEAD /v1/wp/x", forwarded},
		{"POST /v1/wp/a//b/../c%7E", forwarded, "Content-Length: 0"},
		{"GET /v1/wp/missing", forwarded}, {"GET /v1/wp/busy", forwarded}, {"POST /v1/wp/broken", forwarded, "Content-Length: 0"}, {"GET /v1/wp/nonsense", forwarded},
		{"GET /v1/wp/%2f", forwarded}, {"BREW /v1/wp/x", forwarded}, {"OPTIONS *"}, {"GET /healthz"}, {"GET /readyz"}, {"POST /readyz", "Content-Length: 0"},
		{"GET /api/v1/widget/x", "Origin: https://shop.test"}, {"GET /api/v1/widget/x", "Origin: https://evil.test"},
		{"OPTIONS /api/v1/widget/x", "Origin: https://shop.test", "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: x-a"},
		// Too large.
		{"POST /api/v1/widget/leads", "Origin: https://shop.test", "Content-Length: 5000000"},
		{"GET /elsewhere"},
	}
	for range 12 { // the last are refused
		requests = append(requests, []string{"GET /v1/wp/again", "X-Forwarded-For: 203.0.113.9"})
	}
	for _, language := range []string{"de", "fr-CH, en;q=0.5", "xx", "es;q=0.1, it", "en;q=0"} {
		requests = append(requests, []string{"GET /v1/wp/again", "X-Forwarded-For: 203.0.113.9", "Accept-Language: " + language}, []string{"HEAD /v1/wp/again", "X-Forwarded-For: 203.0.113.9"})
	}
	// problem documents, of refusals and of the gateway's own errors
	for _, line := range []string{"GET /v1/wp/again", "HEAD /v1/wp/again", "GET /v1/wp/%2f", "BREW /v1/wp/x", "GET /v1/wp/nonsense", "POST /api/v1/widget/leads"} {
		requests = append(requests, []string{line, "X-Forwarded-For: 203.0.113.9", "Accept: application/problem+json", "Accept-Language: de", "Origin: https://shop.test", "Content-Length: 0"})
	}
	for range 12 {
		requests = append(requests, []string{"GET /api/v1/widget/again", "X-Forwarded-For: 203.0.113.10", "Origin: https://shop.test"})
	}
	const denied = "X-Forwarded-For: 203.0.113.66"
	requests = append(requests, [][]string{
		{"GET /v1/wp/x", denied}, {"HEAD /v1/wp/x", denied}, {"OPTIONS /v1/wp/x", denied}, {"POST /v1/wp/x", denied, "Content-Length: 0"},
		{"GET /api/v1/widget/x", denied, "Origin: https://shop.test"}, {"GET /v1/wp/%2f", denied},
		{"OPTIONS /api/v1/widget/x", denied, "Origin: https://shop.test", "Access-Control-Request-Method: POST"},
	}...)
	run := func(engine Engine) (answers []string, log string, observed []string) {
		var seen observer
		e := open(t, nil, func(options *Options) {
			o.use(options)
			options.Engine, options.IETF, options.TrustedProxies, options.Observe = engine, true, loopback, seen.observe
			options.CORSOrigins = []string{"https://shop.test"}
			options.Limits.Body = 1 << 20
			options.Denial = func(*weir.Decision, weir.Keys, *weir.Scratch) string { return "denied-1" }
			p := testPolicy(t)
			for i := range p.Limiters {
				w, err := weir.ParseWindow(fmt.Sprintf("%d per day by ip", 10))
				if err != nil {
					t.Fatal(err)
				}
				p.Limiters[i].Windows = []weir.Window{w}
				p.Limiters[i].Deny = []weir.Who{{Network: netip.MustParsePrefix("203.0.113.66/32")}}
			}
			options.Decider = testDecider(t, p)
		})
		for _, r := range requests {
			res := e.ask(r[0], r[1:]...)
			var b strings.Builder
			fmt.Fprintln(&b, r, res.Status, res.ContentLength, res.Close)
			for _, name := range slices.Sorted(maps.Keys(res.Header)) {
				if values := res.Header[name]; !slices.Contains([]string{"Date", "X-Ratelimit-Reset", "Ratelimit", "Retry-After"}, name) {
					fmt.Fprintln(&b, name, values)
				} else {
					fmt.Fprintln(&b, name, len(values))
				}
			}
			answers = append(answers, b.String()+regexp.MustCompile(`[0-9]{3,}`).ReplaceAllString(text(t, res), "N"))
		}
		e.stop()
		var lines []string
		for line := range strings.Lines(e.access.String()) {
			lines = append(lines, passing.ReplaceAllString(line, ""))
		}
		slices.Sort(lines) // each line is written after its answer, so two may be in another order
		return answers, strings.Join(lines, ""), seen.seen
	}
	answers, log, observed := run(EngineAuto)
	stdAnswers, stdLog, stdObserved := run(EngineStd)
	for i := range answers {
		if answers[i] != stdAnswers[i] {
			t.Errorf("the fast engine:\n%s\nnet/http:\n%s", answers[i], stdAnswers[i])
		}
	}
	if log != stdLog {
		for i, line := range strings.Split(log, "\n") {
			if other := append(strings.Split(stdLog, "\n"), make([]string, 1000)...)[i]; line != other {
				t.Errorf("access log:\n%s\n%s", line, other)
			}
		}
	}
	if !slices.Equal(observed, stdObserved) {
		t.Errorf("observed\n%q\n%q", observed, stdObserved)
	}
	if strings.Count(log, "\n") != len(requests) || len(observed) == 0 {
		t.Errorf("%d lines and %d observations of %d requests", strings.Count(log, "\n"), len(observed), len(requests))
	}
	if all := strings.Join(answers, "\n"); strings.Count(all, "Denial [denied-1]") < 10 || !strings.Contains(all, "X-Heard [203.0.113.7, 127.0.0.1|https|weir.test]") || !strings.Contains(all, "Ratelimit-Policy") {
		t.Errorf("the answers are not the intended ones:\n%s", all)
	} else if strings.Count(all, "403 Forbidden") != 7 || strings.Count(log, "outcome=denied") != 7 {
		t.Errorf("a denied client is not always answered 403:\n%s\n%s", all, log)
	}
}
