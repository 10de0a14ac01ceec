package gateway

import (
	"encoding/json"
	"net/http"
	"strconv"
	"testing"

	"github.com/weirlimit/weir"
)

// Both engines answer usage themselves: the upstream never gets the request.
func TestUsageIsNotForwarded(t *testing.T) {
	for _, engine := range []Engine{EngineAuto, EngineStd} {
		o := newOrigin(t, func(s *served) {
			for r := s.request(); r != nil; r = s.request() {
				s.answers("%s", ok200)
			}
		})
		e := open(t, nil, func(options *Options) {
			o.use(options)
			options.Engine, options.CORSOrigins = engine, []string{"https://shop.test"}
			p := testPolicy(t)
			p.Limiters = append(p.Limiters, weir.Limiter{
				Name: "usage", Routes: []weir.Route{{Path: "/api/v1/widget/usage"}}, Windows: p.Limiters[0].Windows, Answers: weir.AnswerUsage,
			})
			options.Decider = testDecider(t, p)
		})
		res := e.ask("GET /api/v1/widget/usage", "Origin: https://shop.test")
		body := text(t, res)
		var got struct{ Windows []struct{ Limiter string } }
		if err := json.Unmarshal([]byte(body), &got); err != nil || res.StatusCode != http.StatusOK || len(got.Windows) < 5 {
			t.Errorf("%v: %d %s %v", engine, res.StatusCode, body, err)
		}
		for name, want := range map[string]string{
			"Cache-Control": "no-store", "Content-Type": "application/json", "Content-Length": strconv.Itoa(len(body)), "Access-Control-Allow-Origin": "https://shop.test",
		} {
			if got := res.Header.Get(name); got != want {
				t.Errorf("%v: %s is %q, want %q", engine, name, got, want)
			}
		}
		res = e.ask("HEAD /api/v1/widget/usage")
		if body := text(t, res); res.StatusCode != http.StatusOK || body != "" || res.ContentLength < 100 {
			t.Errorf("%v: HEAD is answered %d %q, length %d", engine, res.StatusCode, body, res.ContentLength)
		}
		want(t, e.ask("POST /api/v1/widget/usage", "Content-Length: 0"), http.StatusMethodNotAllowed, "method_not_allowed", res.Header.Get("X-RateLimit-Limit"))
		if n := o.requests.Load(); n != 0 {
			t.Errorf("%v: the upstream got %d requests", engine, n)
		}
	}
}
