package gateway

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// A backend's own X-RateLimit fields reach the client if no limiter covers the request, and give
// way to the limiter's if one does, in both versions.
func TestABackendsOwnLimitsPassWhereNoLimiterCoversTheRequest(t *testing.T) {
	const own, date = "777", "Thu, 01 Jan 1970 00:00:09 GMT"
	o := newOrigin(t, func(s *served) {
		for s.request() != nil {
			s.answers("HTTP/1.1 200 OK\r\nX-RateLimit-Limit: %s\r\nRetry-After: 9\r\nDate: %s\r\nContent-Length: 2\r\n\r\nok", own, date)
		}
	})
	e := open(t, nil, o.use)
	for version, client := range map[string]*http.Client{"HTTP/1.1": {Transport: new(http.Transport)}, "HTTP/2": h2c(t)} {
		for path, passes := range map[string]bool{"/elsewhere": true, "/v1/wp/x": false} {
			res, err := client.Get(e.url(path))
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, res.Body)
			res.Body.Close()
			if got := strings.Join(res.Header.Values("X-RateLimit-Limit"), "; "); (got == own) != passes || got == "" {
				t.Errorf("%s, %s: X-RateLimit-Limit is %q", version, path, got)
			}
			if (res.Header.Get("Retry-After") == "9") != passes || (res.Header.Get("Date") == date) != passes {
				t.Errorf("%s, %s: %v", version, path, res.Header)
			}
		}
		client.CloseIdleConnections()
	}
}
