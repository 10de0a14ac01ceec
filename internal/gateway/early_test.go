package gateway

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// newEager starts an origin that answers /v1/wp/early once it has the head of the
// request, and ends that answer after it has read the body. It reads any other
// request completely before it answers.
func newEager(t *testing.T) *origin {
	return newOrigin(t, func(s *served) {
		for r := s.request(); r != nil; r = s.request() {
			if r.URL.Path == "/v1/wp/early" {
				s.answers("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\near\r\n")
				_, _ = io.Copy(io.Discard, r.Body)
				s.answers("2\r\nly\r\n0\r\n\r\n")
				continue
			}
			_, _ = io.Copy(io.Discard, r.Body)
			s.answers(ok200)
		}
	})
}

// firstPart is the part of a body before the answer: more than a gateway waits for.
const firstPart = 20000

// asksEarly sends a request whose answer begins before its body ends, and reads the
// whole answer.
func asksEarly(client *http.Client, method, url string, length int64) error {
	body, rest := io.Pipe()
	req, err := http.NewRequest(method, url, body)
	if err != nil {
		return err
	}
	req.ContentLength = length
	first := make(chan struct{})
	go func() {
		defer close(first)
		_, _ = rest.Write(make([]byte, firstPart))
	}()
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.ReadFull(res.Body, make([]byte, 3)); err != nil {
		return err
	}
	<-first
	_, _ = io.WriteString(rest, "last")
	_ = rest.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return err
}

// If an answer was early, its connection is not used again. The next request must
// not fail because of that.
func TestAnUploadSucceedsAfterAnEarlyAnswer(t *testing.T) {
	early := h2c(t) // a server of HTTP/1.1 may read the whole body before it answers
	for name, client := range map[string]*http.Client{"HTTP/1.1": {Transport: new(http.Transport)}, "HTTP/2": early} {
		for _, length := range []int64{firstPart + 4, -1} {
			o := newEager(t)
			e := open(t, nil, o.use)
			for n := range 20 {
				if err := asksEarly(early, "POST", e.url("/v1/wp/early"), length); err != nil {
					t.Fatalf("%s, length %d: the early answer: %v", name, length, err)
				}
				res, err := client.Post(e.url("/v1/wp/x"), "text/plain", strings.NewReader("hello"))
				if err != nil {
					t.Fatal(err)
				}
				body, _ := io.ReadAll(res.Body)
				res.Body.Close()
				if res.StatusCode != http.StatusOK {
					t.Errorf("%s, length %d, upload %d: %d %s", name, length, n, res.StatusCode, body)
				}
			}
			if n := o.requests.Load(); n != 40 {
				t.Errorf("%s, length %d: the upstream was asked %d times by 40 requests", name, length, n)
			}
		}
		client.CloseIdleConnections()
	}
}

// Over HTTP/2 the end of a body is sent separately from its last byte, perhaps
// after the answer.
func TestUploadsOverHTTP2SucceedOnKeptConnections(t *testing.T) {
	const callers, each = 4, 100
	for _, chunked := range []bool{false, true} {
		o := newEager(t)
		e := open(t, nil, o.use)
		var failed atomic.Int64
		var all sync.WaitGroup
		for range callers {
			client := h2c(t)
			all.Go(func() {
				for range each {
					var body io.Reader = bytes.NewReader(make([]byte, 5000))
					if chunked {
						body = io.MultiReader(body)
					}
					res, err := client.Post(e.url("/v1/wp/x"), "text/plain", body)
					if err != nil {
						failed.Add(1)
						continue
					}
					if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != http.StatusOK {
						failed.Add(1)
					}
					res.Body.Close()
				}
			})
		}
		all.Wait()
		if n := failed.Load(); n != 0 {
			t.Errorf("chunked: %v: %d of %d uploads failed", chunked, n, callers*each)
		}
		if n := o.requests.Load(); n != callers*each {
			t.Errorf("chunked: %v: the upstream was asked %d times by %d requests", chunked, n, callers*each)
		}
		if n := o.conns.Load(); n > callers*each/10 {
			t.Errorf("chunked: %v: %d connections for %d uploads of %d callers", chunked, n, callers*each, callers)
		}
	}
}

// One caller's early answers never make another caller's requests fail, with or
// without a declared body.
func TestEarlyAnswersAffectNoOtherCaller(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of work")
	}
	o := newEager(t)
	e := open(t, nil, o.use)
	stop := make(chan struct{})
	var attackers sync.WaitGroup
	for range 4 {
		client := h2c(t)
		attackers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_ = asksEarly(client, "POST", e.url("/v1/wp/early"), -1)
				}
			}
		})
	}
	client := h2c(t)
	for n := range 240 {
		method, body := "POST", io.Reader(strings.NewReader("{}"))
		switch n % 3 {
		case 1:
			method, body = "GET", io.MultiReader(body) // net/http reads a byte of it first
		case 2:
			method, body = "GET", nil
		}
		req, err := http.NewRequest(method, e.url("/v1/wp/x"), body)
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(req)
		if err != nil {
			t.Errorf("request %d: %v", n, err)
			continue
		}
		answer, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Errorf("request %d: %d %s", n, res.StatusCode, answer)
		}
	}
	close(stop)
	attackers.Wait()
}

// HEAD uses the same connections as GET. A connection ends only if the answer
// declares a body.
func TestHEADUsesAKeptConnection(t *testing.T) {
	for length, conns := range map[string]int64{"Content-Length: 0\r\n": 1, "": 1, "Content-Length: 5\r\n": 3} {
		o := newOrigin(t, func(s *served) {
			for r := s.request(); r != nil; r = s.request() {
				if r.Close {
					t.Errorf("%s has Connection: close", r.Method)
				}
				if r.Method == http.MethodHead {
					s.answers("HTTP/1.1 200 OK\r\n%s\r\n", length)
				} else {
					s.answers(ok200)
				}
			}
		})
		e := open(t, nil, o.use)
		c := e.caller()
		for _, method := range []string{"GET", "HEAD", "HEAD", "GET"} {
			c.request(method + " /v1/wp/x")
			if res, _ := c.readAnswer(method); res.StatusCode != http.StatusOK {
				t.Errorf("%q, %s: %d", length, method, res.StatusCode)
			}
			eventually(t, "the connection is put back, or closed", func() bool { return e.gateway.Upstreams()[0].Busy == 0 })
		}
		if n := o.conns.Load(); n != conns {
			t.Errorf("%q: %d connections, want %d", length, n, conns)
		}
	}
}

// An early answer of known length is passed on as it comes, too: its client may wait for its
// beginning before it sends the rest of the request.
func TestAnEarlyAnswerOfKnownLengthIsPassedOnAsItComes(t *testing.T) {
	o := newOrigin(t, func(s *served) {
		if r := s.request(); r != nil {
			s.answers("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\near")
			_, _ = io.Copy(io.Discard, r.Body)
			s.answers("ly")
		}
	})
	e := open(t, nil, o.use)
	if err := asksEarly(h2c(t), "POST", e.url("/v1/wp/early"), -1); err != nil {
		t.Error(err)
	}
}
