package edge

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const notifyPolicy = "limiters:\n  - name: all\n    routes: [/*]\n    windows: [2 per minute by ip]\n    notify: [50, 100]\n" +
	"  - name: tried\n    routes: [/tried]\n    windows: [1 per minute by ip]\n    notify: [100]\n    mode: shadow\n"

const eventsSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// hooked returns a server that posts the events of notifyPolicy to the handler, and its log.
func hooked(t *testing.T, to http.HandlerFunc) (*Server, *bytes.Buffer) {
	t.Helper()
	return hookedUnder(t, notifyPolicy, to)
}

func hookedUnder(t *testing.T, policy string, to http.HandlerFunc) (*Server, *bytes.Buffer) {
	t.Helper()
	receiver := httptest.NewServer(to)
	t.Cleanup(receiver.Close)
	c := testConfig(t, policy)
	log := new(bytes.Buffer) // written by one goroutine, which Close ends
	c.Log = slog.New(slog.NewTextHandler(log, nil))
	var err error
	if c.EventsURL, err = url.Parse(receiver.URL + "/hook?token=swordfish"); err != nil {
		t.Fatal(err)
	}
	c.EventsSecret = filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(c.EventsSecret, []byte(eventsSecret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, _ := opened(t, c)
	return s, log
}

func TestAServerPostsItsEventsBeforeItEnds(t *testing.T) {
	got := make(chan string, 10)
	s, log := hooked(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- string(body)
	})
	for range 3 { // the last is refused
		s.get("/tried")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	close(got)
	all := ""
	for event := range got {
		all += event + "\n"
	}
	for _, want := range []string{`"limiter":"all"`, `"percent":50`, `"percent":100`, `"limiter":"tried"`, `"shadow":true`} {
		if !strings.Contains(all, want) {
			t.Errorf("%s is missing in\n%s", want, all)
		}
	}
	if n := strings.Count(all, "\n"); n != 3 {
		t.Errorf("%d events:\n%s", n, all)
	}
	if n := strings.Count(log.String(), "a limit is used to a percentage"); n != 3 || strings.Contains(log.String(), "swordfish") {
		t.Errorf("the log:\n%s", log)
	}
	rows := ""
	for _, row := range s.Rows() {
		rows += row.Name + " " + row.Text + "\n"
	}
	if !strings.Contains(rows, "events to the log, and signed to http://127.0.0.1:") || strings.Contains(rows, "swordfish") {
		t.Errorf("the rows:\n%s", rows)
	}
}

func TestAWebhookThatGetsNoEventIsAWarning(t *testing.T) {
	for policy, want := range map[string]bool{
		notifyPolicy: false,
		"limiters:\n  - name: all\n    routes: [/*]\n    windows: [2 per minute by ip]\n": true,
	} {
		s, log := hookedUnder(t, policy, func(http.ResponseWriter, *http.Request) {})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(log.String(), "--events-url gets no event: no limiter of the policy has notify"); got != want {
			t.Errorf("warned %v, want %v:\n%s", got, want, log)
		}
	}
}

// A signed event is for the receiver that the operator named.
func TestAnEventDoesNotFollowARedirect(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the event went elsewhere") }))
	defer elsewhere.Close()
	s, log := hooked(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
	})
	s.get("/")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "lost=1 rejected=1") || !strings.Contains(log.String(), "the receiver answered 307") {
		t.Errorf("the log:\n%s", log)
	}
}

func TestABadEventsSecretIsNotShown(t *testing.T) {
	c := testConfig(t, notifyPolicy)
	c.EventsURL = &url.URL{Scheme: "https", Host: "hooks.example.com"}
	c.EventsSecret = filepath.Join(t.TempDir(), "secret")
	if _, err := Open(t.Context(), c); err == nil || !strings.Contains(err.Error(), "--events-secret") {
		t.Errorf("a file that is not there: %v", err)
	}
	if err := os.WriteFile(c.EventsSecret, []byte("whsec_swordfish"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), c); err == nil || !strings.Contains(err.Error(), "base64 of 24 to 64 bytes") || strings.Contains(err.Error(), "swordfish") {
		t.Errorf("a secret that is none: %v", err)
	}
}
