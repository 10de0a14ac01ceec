package main

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

// contractLimits are the rows of the contract's section 8, one window each, as a caller meets them.
func contractLimits(t *testing.T, s *server) []struct {
	name    string
	limit   int64
	call    call
	served  int // the status of what is admitted
	message string
} {
	t.Helper()
	visitor := func() map[string]string {
		return map[string]string{"Authorization": "Bearer " + session(t, s.url)}
	}
	sync := map[string]string{"Authorization": "Bearer " + apiToken(t, s.data, "fresh")}
	return []struct {
		name    string
		limit   int64
		call    call
		served  int
		message string
	}{
		{"widget-leads", 30, call{method: http.MethodPost, path: "/api/v1/widget/leads", body: `{"email":"ada@example.com"}`, header: visitor()}, 201, widgetMessage},
		{"wp-plugin", 60, call{method: http.MethodGet, path: "/v1/wp/status", header: sync}, 200, syncMessage},
		{"widget-satisfaction", 60, call{method: http.MethodPost, path: "/api/v1/widget/satisfaction", body: `{"score":5}`, header: visitor()}, 201, widgetMessage},
		{"widget-coupon", 120, call{method: http.MethodPost, path: "/api/v1/widget/coupon/apply", body: `{"code":"NONE"}`, header: visitor()}, 404, widgetMessage},
		{"widget-session", 300, call{method: http.MethodPost, path: "/api/v1/widget/messages", body: `{"text":"hello"}`, header: visitor()}, 201, widgetMessage},
		{"widget-typing", 600, call{method: http.MethodPost, path: "/api/v1/widget/typing", body: `{"typing":true}`, header: visitor()}, 204, widgetMessage},
		// Counted by address and agent: the sessions above were agent demo's.
		{"widget-init", 1000, call{method: http.MethodPost, path: "/api/v1/widget/init", body: `{"agent_id":"fresh"}`}, 201, widgetMessage},
	}
}

// Contract, section 8: each limit to the unit, under 32 connections at once, and then 429s of section 7's shape.
func TestEveryLimiterAdmitsExactlyItsLimit(t *testing.T) {
	s := serveWeir(t, "--access-log=off")
	for _, row := range contractLimits(t, s) {
		t.Run(fmt.Sprintf("%s %d", row.name, row.limit), func(t *testing.T) {
			wantExactly(t, s.url, row.limit, row.call, row.served)
			args := []string{"-X", row.call.method, s.url + row.call.path, "-d", row.call.body, "-H", "Content-Type: application/json"}
			for name, value := range row.call.header {
				args = append(args, "-H", name+": "+value)
			}
			if row.call.body == "" {
				args = append(args, "-G")
			}
			wantRefusal(t, curl(t, args...), row.limit, time.Minute, row.message)
		})
	}
	s.end(t)
}

// wantExactly floods until the window is spent, and counts by the window that each answer names, so that a minute that
// ends in the middle cannot mislead.
func wantExactly(t *testing.T, url string, limit int64, c call, served int) {
	t.Helper()
	admitted, refused := map[int64]int64{}, map[int64]int64{} // by Reset
	for len(refused) == 0 {
		for _, answer := range flood(t, url, int(limit)+2*connections, c) {
			if answer.limit != limit {
				t.Fatalf("X-RateLimit-Limit is %d, want %d", answer.limit, limit)
			}
			switch answer.status {
			case served, http.StatusServiceUnavailable: // the latter from SQLite on a slow disk; admitted all the same (D5)
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
