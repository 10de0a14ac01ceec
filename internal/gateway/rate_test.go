package gateway

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// trickle sends a byte every few milliseconds until the connection ends, and
// returns the answer.
func trickle(t *testing.T, c net.Conn, piece string) string {
	t.Helper()
	ended := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(c)
		ended <- string(b)
	}()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case answer := <-ended:
			return answer
		case <-tick.C:
			_, _ = io.WriteString(c, piece)
		}
	}
}

// A trickling upload does not hold an upstream's worker for long, even if its
// beginning was fast. The client gets 408, and both connections end. The same
// applies to an upload that is fast enough but takes too long.
func TestAnUploadThatTricklesIsEnded(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of real time")
	}
	read := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			bodyFailed(w, err)
		}
	})
	for limit, change := range map[string]func(*Limits){
		"too slow": func(l *Limits) { l.Rate, l.Grace = 10_000, 300*time.Millisecond },
		"too long": func(l *Limits) { l.Rate, l.Grace, l.Upload = 1, time.Minute, 300*time.Millisecond },
	} {
		o := newOrigin(t, func(s *served) {
			if r := s.request(); r != nil {
				_, _ = io.Copy(io.Discard, r.Body)
			}
		})
		for name, options := range map[string]func(*Options){"an upstream": o.use, "a backend": func(*Options) {}} {
			e := open(t, read, func(o *Options) { options(o); change(&o.Limits) })
			fast := strings.Repeat("x", 100_000)
			for framing, piece := range map[string]string{
				"Content-Length: 1000000\r\n\r\n" + fast:                        "x",
				"Transfer-Encoding: chunked\r\n\r\n186a0\r\n" + fast + "\r\n":   "1\r\nx\r\n",
				"Content-Length: 9000\r\n\r\n":                                  "x",
				"Transfer-Encoding: chunked\r\n\r\n186a0\r\n" + fast + "\r\n10": "0",
			} {
				c := e.dial()
				fmt.Fprint(c, "POST /api/v1/widget/leads HTTP/1.1\r\nHost: h\r\n"+framing)
				answer := trickle(t, c, piece)
				if !strings.HasPrefix(answer, "HTTP/1.1 408 ") && !strings.Contains(framing, "\r\n10") || strings.Contains(answer, "200 OK") ||
					answer != "" && !strings.Contains(answer, "X-RateLimit-Limit: "+leads) {
					t.Errorf("%s, %s, %.30q: %q", limit, name, framing, answer)
				}
			}
			pr, pw := io.Pipe()
			go func() {
				_, _ = io.WriteString(pw, fast)
				tick := time.NewTicker(20 * time.Millisecond)
				defer tick.Stop()
				for range tick.C {
					if _, err := pw.Write([]byte("x")); err != nil {
						return
					}
				}
			}()
			res, err := h2c(t).Post(e.url("/api/v1/widget/leads"), "text/plain", pr)
			if err != nil {
				t.Fatalf("%s, %s, HTTP/2: %v", limit, name, err)
			}
			want(t, res, http.StatusRequestTimeout, "request_timeout", leads)
			_ = pr.Close()
			eventually(t, "the upstream's requests end", func() bool { return o.open.Load() == 0 && e.gateway.InFlight() == 0 })
		}
	}
}

// If a backend pauses reading, its client is not blamed.
func TestAPausingBackendDoesNotEndAnUpload(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of real time")
	}
	slow := func(w http.ResponseWriter, r *http.Request) {
		pause := time.NewTimer(1500 * time.Millisecond)
		defer pause.Stop()
		<-pause.C
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		fmt.Fprint(w, n)
	}
	body := bytes.Repeat([]byte("x"), 32<<20) // more than the sockets hold
	for name, change := range map[string]func(*Options){"an upstream": behind(t, slow), "a backend": func(o *Options) { o.Limits.Body = -1 }} {
		e := open(t, http.HandlerFunc(slow), func(o *Options) {
			change(o)
			o.Limits.Rate, o.Limits.Grace = 1000, 600*time.Millisecond
		})
		for version, client := range map[string]*http.Client{"HTTP/1.1": {Transport: &http.Transport{DisableKeepAlives: true}}, "HTTP/2": h2c(t)} {
			res, err := client.Post(e.url("/v1/wp/x"), "text/plain", bytes.NewReader(body))
			if err != nil {
				t.Fatalf("%s, %s: %v", name, version, err)
			}
			if got := text(t, res); got != fmt.Sprint(len(body)) {
				t.Errorf("%s, %s: %d %q", name, version, res.StatusCode, got)
			}
		}
	}
}
