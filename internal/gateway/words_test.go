package gateway

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
)

// Every error that a caller gets has the form that the policy declares, on both engines: the
// limiter's and the gateway's own. Its fields and its status are the policy's.
func TestEveryErrorHasTheFormOfThePolicy(t *testing.T) {
	for _, engine := range []Engine{EngineAuto, EngineStd} {
		e := open(t, nil, func(o *Options) {
			newOrigin(t, func(s *served) {
				for s.request() != nil {
					s.answers("nonsense\r\n\r\n")
					return
				}
			}).use(o)
			p := testPolicy(t)
			w, err := weir.ParseWindow("4 per day by ip")
			if err != nil {
				t.Fatal(err)
			}
			for i := range p.Limiters {
				p.Limiters[i].Windows = []weir.Window{w}
			}
			p.Messages = map[string]weir.Texts{"wait": {"en": "Wait for {limiter}."}}
			p.Answers = weir.Answers{Format: weir.FormatProblem, Refused: weir.Answer{Status: 503, Message: "wait", Fields: map[string]string{"x-support": "https://example.com"}}}
			o.Engine, o.Decider = engine, testDecider(t, p)
		})
		for _, test := range []struct {
			line   string
			status int
			code   string
		}{
			{"GET /v1/wp/%2f", 400, "invalid_request"},
			{"BREW /v1/wp/x", 405, "method_not_allowed"},
			{"GET /v1/wp/nonsense", 502, "upstream_unavailable"},
			{"GET /v1/wp/nonsense", 502, "upstream_unavailable"},
			{"GET /v1/wp/x", 503, "rate_limited"},
			{"HEAD /v1/wp/x", 503, ""},
		} {
			res := e.ask(test.line)
			body := text(t, res)
			if res.StatusCode != test.status || res.Header.Get("Content-Type") != "application/problem+json" || res.Header.Get("X-Ratelimit-Limit") != "4" {
				t.Errorf("%v: %s is answered %s with %q", engine, test.line, res.Status, res.Header)
			}
			if test.code == "" {
				if body != "" || res.ContentLength < 100 {
					t.Errorf("%v: %s has the body %q of length %d", engine, test.line, body, res.ContentLength)
				}
				continue
			}
			var p struct {
				Type, Detail, Code string
				Status             int
				Violated           []string `json:"violated-policies"`
			}
			if err := json.Unmarshal([]byte(body), &p); err != nil || p.Code != test.code || p.Status != test.status || p.Detail == "" {
				t.Errorf("%v: %s is answered %s, %v", engine, test.line, body, err)
			}
			refused, says := p.Code == "rate_limited", strings.HasPrefix(p.Detail, "Wait for ")
			if refused != (len(p.Violated) == 1) || refused != (res.Header.Get("X-Support") != "") || refused != says {
				t.Errorf("%v: %s is answered %s with %q", engine, test.line, body, res.Header)
			}
		}
		e.stop()
		if log := e.access.String(); strings.Count(log, "outcome=refused") != 2 || strings.Count(log, "outcome=store_unavailable") != 0 {
			t.Errorf("%v: a refusal with %d is another outcome in the access log:\n%s", engine, http.StatusServiceUnavailable, log)
		}
	}
}
