package gateway

import (
	"net/http"
	"strings"
	"testing"
)

func TestNoLineHoldsAQueryOrACredential(t *testing.T) {
	e := open(t, new(recorder), nil)
	for _, target := range []string{"/v1/wp/status?secret", "/v1/wp/%00?secret", "/v1/wp/x?secret#y", "http://user:secret@h/v1/wp/x?secret", "x:/y?secret"} {
		e.ask("GET "+target, "Authorization: Bearer secret", "Cookie: secret", "X-Agent-Id: secret")
	}
	e.stop()
	if log := e.access.String(); strings.Count(log, "\n") != 5 || strings.Contains(log, "secret") {
		t.Errorf("access log:\n%s", log)
	}
}

func TestTheLogCountsTheBytesOfTheBody(t *testing.T) {
	e := open(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("12345")) }), nil)
	e.ask("GET /v1/wp/status")
	e.ask("HEAD /v1/wp/status")
	e.stop()
	for _, line := range []string{"method=GET path=/v1/wp/status status=200 bytes=5 ", "method=HEAD path=/v1/wp/status status=200 bytes=0 "} {
		if !strings.Contains(e.access.String(), line) {
			t.Errorf("access log %q, want %q", e.access.String(), line)
		}
	}
}
