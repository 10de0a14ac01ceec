package apptest

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

func TestEveryServerReportsItsRequests(t *testing.T) {
	for name, start := range map[string]func(testing.TB) *Server{
		"gunicorn": Gunicorn, "daphne": Daphne, "php": PHP, "lighttpd": Lighttpd, "python": Python,
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			for range 2 {
				req, err := http.NewRequest("POST", "http://"+s.Addr+"/some/where?q=1", strings.NewReader("body"))
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("X-Own", "mine")
				res, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(res.Body)
				res.Body.Close()
				lines := strings.Split(string(body), "\n")
				if err != nil || res.StatusCode != 200 || lines[0] != "POST /some/where" || !slices.Contains(lines, "HTTP_X_OWN=mine") {
					t.Errorf("%d %q, %v", res.StatusCode, body, err)
				}
			}
			if seen, want := s.Seen(t), []string{"POST /some/where", "POST /some/where"}; !slices.Equal(seen, want) {
				t.Errorf("it has seen %q, want %q", seen, want)
			}
			if err := s.Stop(); err != nil {
				t.Error(err)
			}
			if res, err := http.Get("http://" + s.Addr); err == nil {
				res.Body.Close()
				t.Error("the port is still in use")
			}
		})
	}
}
