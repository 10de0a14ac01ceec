package client

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/admin"
	"github.com/weirlimit/weir/internal/cli"
)

// serve returns a Client of a server that proves that it knows the token, like the
// admin listener. answer handles all other requests; challenge, if not nil, handles
// challenges, too.
func serve(t *testing.T, challenge, answer http.HandlerFunc) Client {
	t.Helper()
	tokens := admin.OpenTokens(t.TempDir(), admin.TokensOptions{})
	token, err := tokens.Create(t.Context(), "ada")
	if err != nil {
		t.Fatal(err)
	}
	if challenge == nil {
		challenge = func(w http.ResponseWriter, r *http.Request) {
			proof, err := tokens.Prove(r.URL.Query(), r.Host)
			if err != nil {
				t.Error(err)
			}
			_ = json.NewEncoder(w).Encode(proof) // the client may be gone
		}
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/challenge" {
			if r.Header.Get("Authorization") != "" {
				t.Error("the challenge carries the token")
			}
			challenge(w, r)
			return
		}
		if r.Header.Get("Authorization") != "Bearer "+token {
			t.Errorf("%s %s carries %q", r.Method, r.URL, r.Header.Get("Authorization"))
		}
		answer(w, r)
	}))
	t.Cleanup(s.Close)
	return Client{URL: s.URL, Token: token}
}

func TestAServerThatKnowsTheTokenGetsRequests(t *testing.T) {
	c := serve(t, nil, func(w http.ResponseWriter, r *http.Request) {
		body := map[string]any{"method": r.Method, "type": r.Header.Get("Content-Type")}
		_ = json.NewEncoder(w).Encode(body) // the client may be gone
	})
	for _, row := range []struct {
		change any
		method string
		media  string
	}{{nil, "GET", ""}, {map[string]string{"why": "a test"}, "POST", "application/json"}} {
		b, err := c.Ask(t.Context(), "/keys", row.change)
		if err != nil {
			t.Fatal(err)
		}
		var got struct{ Method, Type string }
		if err := Decode(b, &got); err != nil || got.Method != row.method || got.Type != row.media {
			t.Errorf("the server got %+v, %v; want %s with %q", got, err, row.method, row.media)
		}
	}
}

func TestAServerWithoutAProofGetsNoRequests(t *testing.T) {
	for name, row := range map[string]struct {
		challenge http.HandlerFunc
		want      string
	}{
		"no proof": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) }, "so no token was sent"},
		"a redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/challenge?again", http.StatusFound)
		}, "it answers 302"},
		"an unknown token": {challengeStatus(http.StatusUnauthorized, ""), "does not know the token, so it was not sent"},
		"an unknown name":  {challengeStatus(http.StatusMisdirectedRequest, ""), "does not accept that host name"},
		"too many":         {challengeStatus(http.StatusTooManyRequests, "9"), "received too many wrong ones"},
		"an error":         {challengeStatus(http.StatusInternalServerError, ""), "answers 500, so no token was sent"},
	} {
		t.Run(name, func(t *testing.T) {
			c := serve(t, row.challenge, func(http.ResponseWriter, *http.Request) { t.Error("the server is asked") })
			_, err := c.Ask(t.Context(), "/keys", nil)
			var f *cli.Failure
			if !errors.As(err, &f) || !strings.Contains(err.Error(), row.want) || f.Hint == "" || f.Exit != cli.Failed {
				t.Errorf("%v (%+v), want %q and a hint", err, f, row.want)
			}
		})
	}
}

// challengeStatus answers a challenge like an admin listener that rejects it.
func challengeStatus(status int, retryAfter string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", "Bearer "+admin.Realm)
		if retryAfter != "" {
			w.Header().Set("Retry-After", retryAfter)
		}
		w.WriteHeader(status)
	}
}

func TestAServersErrorIsPrintedLikeTheProgramsOwn(t *testing.T) {
	for body, want := range map[string]string{
		`{"error":{"code":"x","message":"No limiter is called \u001b[2Jz."}}`: `no limiter is called \x1b[2Jz`,
		`{"error":{"code":"x","message":"IPv6 is meant."}}`:                   "IPv6 is meant",
		`nonsense`: "answers 400, but not like the admin listener of 'weir serve'",
	} {
		c := serve(t, nil, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(body))
		})
		if _, err := c.Ask(t.Context(), "/keys", nil); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v, want %q", body, err, want)
		}
	}
}
