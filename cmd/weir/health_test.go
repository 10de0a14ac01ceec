package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// answering serves a status and a text at /readyz.
func answering(status int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			status, text = http.StatusTeapot, r.URL.Path
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}
}

func TestHealthIsWhatTheServerAnswers(t *testing.T) {
	for name, start := range map[string]func(http.Handler) *httptest.Server{"cleartext": httptest.NewServer, "TLS": httptest.NewTLSServer} {
		for _, c := range []struct {
			status int
			text   string
			want   string // of the error; empty: healthy
		}{
			{200, "ready\n", ""},
			{503, "not ready: draining\n", "not ready: draining"},
			{404, "", "the answer is 404, expected 200"},
		} {
			server := start(answering(c.status, c.text))
			text, err := askReady(t.Context(), server.Listener.Addr().String())
			server.Close()
			switch {
			case c.want == "" && (err != nil || text != c.text):
				t.Errorf("%s, %d: %q, %v", name, c.status, text, err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) && name == "cleartext"):
				t.Errorf("%s, %d: %v, want %q", name, c.status, err, c.want)
			}
		}
	}
}

func TestHealthAsksThisMachineOfAServerOnEveryAddress(t *testing.T) {
	server := httptest.NewServer(answering(200, "ready\n"))
	defer server.Close()
	_, port, _ := strings.Cut(server.Listener.Addr().String(), ":")
	for _, listen := range []string{":" + port, "0.0.0.0:" + port} {
		if text, err := askReady(t.Context(), listen); err != nil || text != "ready\n" {
			t.Errorf("%s: %q, %v", listen, text, err)
		}
	}
}
