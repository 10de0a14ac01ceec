package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"github.com/weirlimit/weir/internal/admin"
	"github.com/weirlimit/weir/internal/cli"
)

// serve returns a Client of a server that proves that it knows the token, like the
// admin listener. answer handles all other requests; challenge, if not nil, handles
// challenges, too.
func serve(t *testing.T, challenge, answer http.HandlerFunc) Client {
	t.Helper()
	tokens := admin.OpenTokens(t.TempDir(), admin.TokensOptions{})
	token, err := tokens.Create(t.Context(), "ada", admin.Admin, "")
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
		"no proof": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) }, "is not an admin listener: it answers 200"},
		"an endless answer": {func(w http.ResponseWriter, _ *http.Request) {
			for {
				if _, err := w.Write(make([]byte, 4<<10)); err != nil {
					return
				}
			}
		}, "is not an admin listener: it answers 200"},
		"another service": {http.NotFound, "is not an admin listener: it answers 404"},
		"a redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/challenge?again", http.StatusFound)
		}, "is not an admin listener: it answers 302"},
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

// listen returns the URL of a listener whose connections are given to answer, one after another.
func listen(t *testing.T, answer func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			answer(c)
			_ = c.Close()
		}
	})
	return "http://" + l.Addr().String()
}

const secret = "wadm_s3cret"

// What a port sends is not trusted to be HTTP, to end, or to arrive.
func TestAPortThatIsNoWebServerGetsNoToken(t *testing.T) {
	for name, row := range map[string]struct {
		answer func(net.Conn)
		want   string
	}{
		"closes at once": {func(net.Conn) {}, "is not an admin listener: it closed the connection"},
		"speaks first":   {func(c net.Conn) { _, _ = io.WriteString(c, "220 mail.example.com ESMTP\r\n") }, "is not an admin listener: it does not answer in HTTP"},
		"speaks TLS":     {func(c net.Conn) { _, _ = c.Write([]byte{21, 3, 1, 0, 2, 2, 70}) }, "is not an admin listener: it does not answer in HTTP"},
		"controls the terminal": {func(c net.Conn) {
			_, _ = io.WriteString(c, "\x1b[2J\u202e\r\n\r\n")
		}, "is not an admin listener"},
		"endless head": {func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n")
			for {
				if _, err := io.WriteString(c, "X-A: "+strings.Repeat("a", 4<<10)+"\r\n"); err != nil {
					return
				}
			}
		}, "is not an admin listener"},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var sent strings.Builder
			c := Client{Token: secret, URL: listen(t, func(c net.Conn) {
				b := make([]byte, 4<<10)
				n, _ := c.Read(b)
				mu.Lock()
				sent.Write(b[:n])
				mu.Unlock()
				row.answer(c)
			})}
			_, err := c.Ask(t.Context(), "/keys?ip=192.0.2.7", nil)
			var f *cli.Failure
			if !errors.As(err, &f) || !strings.Contains(err.Error(), row.want) || !strings.Contains(err.Error(), c.URL) || f.Hint == "" || f.Exit != cli.Failed {
				t.Errorf("%v (%+v), want %q and a hint", err, f, row.want)
			}
			for _, r := range err.Error() {
				if !unicode.IsPrint(r) {
					t.Errorf("the error has the character %U", r)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if text := sent.String(); !strings.HasPrefix(text, "GET /challenge?") || strings.Contains(text, "s3cret") || strings.Contains(text, "192.0.2.7") {
				t.Errorf("it was sent %q", text)
			}
		})
	}
}

// A port that accepts and never answers is given up, before its answer and within it.
func TestAServerThatHangsIsGivenUp(t *testing.T) {
	for name, begins := range map[string]string{"nothing": "", "half a head": "HTTP/1.1 200 OK\r\nContent-", "half a body": "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"} {
		t.Run(name, func(t *testing.T) {
			c := Client{Token: secret, Timeout: 50 * time.Millisecond, URL: listen(t, func(c net.Conn) {
				_, _ = c.Read(make([]byte, 1))
				_, _ = io.WriteString(c, begins)
				_, _ = io.Copy(io.Discard, c) // until the client gives up
			})}
			_, err := c.Ask(t.Context(), "/keys", nil)
			var f *cli.Failure
			if !errors.As(err, &f) || !strings.Contains(err.Error(), "has not answered in time") || f.Hint == "" {
				t.Errorf("%v", err)
			}
		})
	}
}

// Over plain HTTP no connection is made to an address that is not a loopback address, whatever the
// name.
func TestPlainHTTPLeavesThisMachineOnlyIfPermitted(t *testing.T) {
	for address, allowed := range map[string]bool{
		"127.0.0.1:1": true, "127.9.9.9:1": true, "[::1]:1": true, "[::ffff:127.0.0.1]:1": true,
		"192.0.2.1:1": false, "10.0.0.1:1": false, "[2001:db8::1]:1": false, "[::ffff:192.0.2.1]:1": false, "[fe80::1%eth0]:1": false,
		"0.0.0.0:1": false, "[::]:1": false, "nonsense": false,
	} {
		if err := loopbackOnly(t.Context(), "tcp", address, nil); (err == nil) != allowed {
			t.Errorf("%s: %v, want allowed %v", address, err, allowed)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel() // nothing is sent to these addresses, either way
	for _, url := range []string{"http://192.0.2.1:9", "http://[2001:db8::1]:9"} {
		c := Client{URL: url, Token: secret}
		_, err := c.Ask(t.Context(), "/keys", nil)
		var f *cli.Failure
		if !errors.As(err, &f) || !strings.Contains(err.Error(), "no token was sent to "+c.URL) || !strings.Contains(f.Hint, "--admin-plain-http") || f.Exit != cli.Failed {
			t.Errorf("%s: %v", c.URL, err)
		}
		c.PlainHTTP = true
		if _, err := c.Ask(ended, "/keys", nil); err == nil || errors.Is(err, errPlainHTTP) {
			t.Errorf("%s, permitted: %v", c.URL, err)
		}
		c.PlainHTTP, c.URL = false, strings.Replace(c.URL, "http:", "https:", 1)
		if _, err := c.Ask(ended, "/keys", nil); err == nil || errors.Is(err, errPlainHTTP) {
			t.Errorf("%s: %v", c.URL, err)
		}
	}
}
