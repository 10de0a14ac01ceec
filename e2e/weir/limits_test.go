package weir

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

// A contractLimit is a window of the contract's section 8, as a caller sees it.
type contractLimit struct {
	name    string
	limit   int64
	call    call
	served  int // the status of an admitted request
	message string
}

// contractLimits returns all of them, for callers with new sessions and an unused
// API token.
func contractLimits(t *testing.T, url, token string) []contractLimit {
	t.Helper()
	visitor := func() map[string]string {
		return map[string]string{"Authorization": "Bearer " + session(t, url)}
	}
	sync := map[string]string{"Authorization": "Bearer " + token}
	return []contractLimit{
		{"widget-leads", 30, call{method: http.MethodPost, path: "/api/v1/widget/leads", body: `{"email":"ada@example.com"}`, header: visitor()}, 201, widgetMessage},
		{"wp-plugin", 60, call{method: http.MethodGet, path: "/v1/wp/status", header: sync}, 200, syncMessage},
		{"widget-satisfaction", 60, call{method: http.MethodPost, path: "/api/v1/widget/satisfaction", body: `{"score":5}`, header: visitor()}, 201, widgetMessage},
		{"widget-coupon", 120, call{method: http.MethodPost, path: "/api/v1/widget/coupon/apply", body: `{"code":"NONE"}`, header: visitor()}, 404, widgetMessage},
		{"widget-session", 300, call{method: http.MethodPost, path: "/api/v1/widget/messages", body: `{"text":"hello"}`, header: visitor()}, 201, widgetMessage},
		{"widget-typing", 600, call{method: http.MethodPost, path: "/api/v1/widget/typing", body: `{"typing":true}`, header: visitor()}, 204, widgetMessage},
		// Counted by address and agent; the sessions above belong to agent demo.
		{"widget-init", 1000, call{method: http.MethodPost, path: "/api/v1/widget/init", body: `{"agent_id":"fresh"}`}, 201, widgetMessage},
	}
}

// Contract, section 8: each limit exactly, with 32 connections, and then 429s in
// section 7's format.
func TestEveryLimiterAdmitsExactlyItsLimit(t *testing.T) {
	s := serveWeir(t, "--access-log=off")
	for _, row := range contractLimits(t, s.url, apiToken(t, s.data, "fresh")) {
		t.Run(fmt.Sprintf("%s %d", row.name, row.limit), func(t *testing.T) { wantRow(t, s, row) })
	}
	s.end(t)
}

// wantRow checks that a limiter admits exactly its limit.
func wantRow(t *testing.T, s *server, row contractLimit) {
	t.Helper()
	wantExactly(t, s.url, row.limit, row.call, row.served)
	args := []string{"-X", row.call.method, s.url + row.call.path, "-d", row.call.body, "-H", "Content-Type: application/json"}
	for name, value := range row.call.header {
		args = append(args, "-H", name+": "+value)
	}
	if row.call.body == "" {
		args = append(args, "-G")
	}
	wantRefusal(t, curl(t, args...), row.limit, time.Minute, row.message)
}

// wantExactly sends requests until the window is spent. It counts by the window in
// each answer, so a minute that ends in the middle does no harm.
func wantExactly(t *testing.T, url string, limit int64, c call, served int) {
	t.Helper()
	admitted, refused := map[int64]int64{}, map[int64]int64{} // by Reset
	for len(refused) == 0 {
		for _, answer := range flood(t, url, int(limit)+2*connections, c) {
			if answer.limit != limit {
				t.Fatalf("X-RateLimit-Limit is %d, want %d", answer.limit, limit)
			}
			switch answer.status {
			case served, http.StatusServiceUnavailable:
				// The backend answers 503 if SQLite is on a slow disk. The request
				// was admitted (D5).
				admitted[answer.reset]++
			case http.StatusTooManyRequests:
				refused[answer.reset]++
			default:
				t.Fatalf("status %d, want %d or 429", answer.status, served)
			}
		}
	}
	for reset, n := range admitted {
		if n > limit || refused[reset] > 0 && n != limit {
			t.Errorf("%d admitted and %d refused in the window that ends at %d; the limit is %d", n, refused[reset], reset, limit)
		}
	}
}
