package gateway

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// Every admitted request is counted, even if the backend fails or does not answer
// (D5).
func TestARequestCountsForAnyAnswerOfTheBackend(t *testing.T) {
	e := open(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch status, err := strconv.Atoi(r.URL.RawQuery); {
		case r.URL.RawQuery == "abort":
			panic(http.ErrAbortHandler)
		case err != nil:
			panic("a handler's own mistake")
		default:
			w.WriteHeader(status)
		}
	}), nil)
	const limit = 1_000_003 // wp-plugin's here
	spent := 0
	for _, query := range []string{"200", "404", "500", "503", "panic", "429", "304"} {
		res := e.ask("GET /v1/wp/status?" + query)
		spent++
		left := strconv.Itoa(limit - spent)
		if query == "429" {
			left = "0" // because the backend refuses too (D19)
		}
		if got := res.Header.Get("X-RateLimit-Remaining"); got != left {
			t.Errorf("%s: %s remaining, want %s", query, got, left)
		}
	}
	c := e.dial()
	if _, err := io.WriteString(c, "GET /v1/wp/status?abort HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	_, _ = io.ReadAll(c) // until the connection ends
	res := e.ask("GET /v1/wp/status?200")
	if got, left := res.Header.Get("X-RateLimit-Remaining"), strconv.Itoa(limit-spent-2); got != left {
		t.Errorf("after an answer that was cut off: %s remaining, want %s", got, left)
	}
}

// An unknown expectation gets the HTTP server's own 417, before it is a request of
// any surface (D9).
func TestAnUnknownExpectationIsTheServersOwn417(t *testing.T) {
	seen := new(recorder)
	e := open(t, seen, nil)
	c := e.dial()
	if _, err := io.WriteString(c, "GET /v1/wp/status HTTP/1.1\r\nHost: h\r\nExpect: miracles\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(answer), "HTTP/1.1 417 ") || strings.Contains(string(answer), "RateLimit") {
		t.Errorf("%.80q, want 417 without fields", answer)
	}
	if s, reached := seen.last(); reached {
		t.Errorf("it reached the backend: %v", s)
	}
}
