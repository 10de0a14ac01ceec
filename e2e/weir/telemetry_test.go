package weir

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

func TestAServerPostsItsTracesBeforeItEnds(t *testing.T) {
	var mu sync.Mutex
	var posted []byte
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		posted = append(posted, b...)
	}))
	defer collector.Close()
	s := serveWeir(t, "--traces", collector.URL)
	res, err := http.Get(s.url + "/api/v1/widget/conversations?token=secret")
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	s.end(t)
	mu.Lock()
	defer mu.Unlock()
	for _, want := range []string{"widget-session", "60s by session or ip", "unauthenticated", "/api/v1/widget/conversations", "service.name"} {
		if !bytes.Contains(posted, []byte(want)) {
			t.Errorf("the collector did not receive %q: %q", want, posted)
		}
	}
	for _, secret := range []string{"secret", "127.0.0.1:", "Go-http-client"} {
		if bytes.Contains(posted, []byte(secret)) {
			t.Errorf("the collector received %q: %q", secret, posted)
		}
	}
}
