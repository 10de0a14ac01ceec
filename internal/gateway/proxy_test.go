package gateway

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// A raw upstream handles each connection with a function.
func rawUpstream(t testing.TB, serve func(net.Conn)) func(*Options) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
	return before(t, "http://"+l.Addr().String())
}

// readHead reads a request up to the end of its header.
func readHead(c net.Conn) (head string, rest *bufio.Reader) {
	r := bufio.NewReader(c)
	var b strings.Builder
	for {
		line, err := r.ReadString('\n')
		b.WriteString(line)
		if err != nil || line == "\r\n" {
			return b.String(), r
		}
	}
}

// If a request has no Host, as HTTP/1.0 allows, or an empty one (RFC 9112, section
// 3.2), the upstream gets its own host, and no X-Forwarded-Host.
func TestWithoutAHostTheUpstreamGetsItsOwn(t *testing.T) {
	heads := make(chan string, 1)
	o := newOrigin(t, func(s *served) {
		// The end of a connection could lose a request.
		for head, _ := readHead(s.Conn); head != ""; head, _ = readHead(s.Conn) {
			heads <- head
			s.answers("%s", ok200)
		}
	})
	var own string
	e := open(t, nil, func(options *Options) {
		o.use(options)
		own = options.Sites[0].Upstreams[0].Host
		// The first address's name is used for each address.
		nowhere := &url.URL{Scheme: "http", Host: "127.0.0.1:1"}
		options.Sites = To(options.Sites[0].Upstreams[0], nowhere)
	})
	for request, want := range map[string]string{
		"GET / HTTP/1.0\r\n": own,
		"GET / HTTP/1.0\r\nX-Forwarded-Host: evil.test\r\n":          own,
		"GET / HTTP/1.0\r\nHost:\r\n":                                own,
		"GET / HTTP/1.1\r\nHost: \r\n":                               own,
		"GET / HTTP/1.0\r\nHost: a.test\r\n":                         "a.test",
		"GET / HTTP/1.1\r\nHost: a.test:81\r\nConnection: close\r\n": "a.test:81",
	} {
		t.Run(request, func(t *testing.T) {
			c := e.caller()
			c.write("%s\r\n", request)
			head := within(t, patience, "the upstream is asked", heads)
			if c.readAnswer("GET"); strings.Count(head, "\r\nHost: ") != 1 || !strings.Contains(head, "\r\nHost: "+want+"\r\n") {
				t.Errorf("%q: the upstream receives\n%swant Host: %s", request, head, want)
			}
			named := strings.Contains(head, "\r\nX-Forwarded-Host: "+want+"\r\n")
			if strings.Contains(head, "X-Forwarded-Host") != named || named != (want != own) {
				t.Errorf("%q: the upstream receives another host\n%s", request, head)
			}
		})
	}
}

// The backend gets one X-Forwarded-For, from the decided chain, and the original
// Host (D12). It gets no field with which a client could change the path or method
// (D10).
func TestTheUpstreamGetsTheDecidedFields(t *testing.T) {
	heads := make(chan string, 1)
	e := open(t, nil, func(o *Options) {
		rawUpstream(t, func(c net.Conn) {
			head, _ := readHead(c)
			heads <- head
			_, _ = io.WriteString(c, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
		})(o)
	})
	forged := []string{
		"X-Forwarded-For: 6.6.6.6", "X-Forwarded-For: 7.7.7.7", "Forwarded: for=6.6.6.6", "X-Real-IP: 6.6.6.6", "X-Forwarded-Proto: https",
		"X-Forwarded-Host: evil.test", "X-Forwarded-Port: 6", "X-Forwarded-Prefix: /evil", "X_Forwarded_For: 6.6.6.6", "x-forwarded_host: evil.test",
		"X-HTTP-Method-Override: DELETE", "X-HTTP-Method: DELETE", "X-Method-Override: DELETE", "X_HTTP_METHOD_OVERRIDE: DELETE",
		"X-Original-URL: /evil", "X-Rewrite-URL: /evil", "X-Original-URI: /evil", "True-Client-IP: 6.6.6.6", "CF-Connecting-IP: 6.6.6.6",
		"Client-IP: 6.6.6.6", "Proxy-Connection: evil", "Keep-Alive: evil", "TE: evil", "Connection: close, x-hop", "X-Hop: evil",
	}
	e.ask("GET /v1/wp/status?q=%2F&z", append(forged, "X-Own: kept", "Authorization: Bearer kept", "User-Agent: kept")...)
	head := <-heads
	for _, evil := range []string{"evil", "6.6.6.6", "7.7.7.7", "DELETE"} {
		if strings.Contains(head, evil) {
			t.Errorf("the upstream receives %q:\n%s", evil, head)
		}
	}
	for _, line := range []string{
		"GET /v1/wp/status?q=%2F&z HTTP/1.1\r\nHost: weir.test\r\n", "X-Forwarded-For: 127.0.0.1\r\n", "X-Forwarded-Proto: http\r\n",
		"X-Forwarded-Host: weir.test\r\n", "X-Own: kept\r\n", "Authorization: Bearer kept\r\n", "User-Agent: kept\r\n",
	} {
		if strings.Count(head, line) != 1 {
			t.Errorf("the upstream does not receive %q exactly once:\n%s", line, head)
		}
	}
	if strings.Contains(head, "Accept-Encoding") {
		t.Errorf("the upstream receives a coding that the client did not request:\n%s", head)
	}
}

func TestATrustedProxysFieldsAreForwarded(t *testing.T) {
	heads := make(chan http.Header, 1)
	e := open(t, nil, func(o *Options) {
		behind(t, func(_ http.ResponseWriter, r *http.Request) { heads <- r.Header })(o)
		o.TrustedProxies = loopback
	})
	e.ask("GET /v1/wp/status", "X-Forwarded-For: 6.6.6.6, 203.0.113.7, 127.0.0.9", "X-Forwarded-Proto: https")
	h := <-heads
	if got := h["X-Forwarded-For"]; !slices.Equal(got, []string{"203.0.113.7, 127.0.0.9, 127.0.0.1"}) {
		t.Errorf("X-Forwarded-For %q", got)
	}
	if got := h.Get("X-Forwarded-Proto"); got != "https" {
		t.Errorf("X-Forwarded-Proto %q", got)
	}
	e.ask("GET /v1/wp/status", "X-Forwarded-Proto: gopher")
	if got := (<-heads).Get("X-Forwarded-Proto"); got != "http" {
		t.Errorf("X-Forwarded-Proto %q", got)
	}
	e.stop()
	if !strings.Contains(e.access.String(), "client=203.0.113.7 ") {
		t.Errorf("access log %q", e.access.String())
	}
}

func TestTheBasePathIsPutBeforeTheCanonicalOne(t *testing.T) {
	targets := make(chan string, 1)
	for base, table := range map[string]map[string]string{
		"": {
			"/v1/wp/a//b/../c%7E": "/v1/wp/a/c~", "/": "/", "": "/", "/?": "/?", "/v1/wp/a%3fb(c)": "/v1/wp/a%3Fb(c)", "//evil.test/x": "/evil.test/x",
			"http://u:p@evil.test/x": "/x",
		},
		"/base/%C3%A9/": {
			"/v1/wp/x": "/base/%C3%A9/v1/wp/x", "/": "/base/%C3%A9/", "/../../x": "/base/%C3%A9/x", "/v1/wp/a%3fb": "/base/%C3%A9/v1/wp/a%3Fb",
			"/v1/wp/x?a=%zz&b=1": "/base/%C3%A9/v1/wp/x?a=%zz&b=1",
		},
		"/b%28": {"/x": "/b%28/x"},
	} {
		e := open(t, nil, func(o *Options) {
			behind(t, func(_ http.ResponseWriter, r *http.Request) { targets <- r.RequestURI })(o)
			u, err := url.Parse(o.Sites[0].Upstreams[0].String() + base)
			if err != nil {
				t.Fatal(err)
			}
			o.Sites = To(u)
		})
		for target, onward := range table {
			if target == "" {
				target = "http://weir.test"
			}
			if strings.HasPrefix(target, "http:") && e.gateway.Fast() {
				want(t, e.ask("GET "+target), http.StatusBadRequest, "invalid_request", "")
				continue
			}
			e.ask("GET " + target)
			if got := <-targets; got != onward {
				t.Errorf("base %q: %q arrives as %q, want %q", base, target, got, onward)
			}
		}
	}
}

func TestAWebsocketPasses(t *testing.T) {
	e := open(t, nil, rawUpstream(t, func(c net.Conn) {
		head, r := readHead(c)
		if !strings.Contains(head, "Upgrade: WebSocket\r\n") || !strings.Contains(strings.ToLower(head), "sec-websocket-key: k\r\n") {
			_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-RateLimit-Limit: 6\r\nRetry-After: 6\r\nSec-WebSocket-Accept: a\r\n\r\nhello ")
		_, _ = io.Copy(c, r)
	}))
	c := e.dial()
	fmt.Fprintf(c, "GET /api/v1/widget/events HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Key: k\r\n\r\n")
	r := bufio.NewReader(c)
	status, err := textproto.NewReader(r).ReadLine()
	if err != nil || status != "HTTP/1.1 101 Switching Protocols" {
		t.Fatalf("%q, %v", status, err)
	}
	h, err := textproto.NewReader(r).ReadMIMEHeader()
	if err != nil {
		t.Fatal(err)
	}
	if got := h["X-Ratelimit-Limit"]; !slices.Equal(got, []string{"1000001"}) {
		t.Errorf("X-RateLimit-Limit %q", got)
	}
	if h.Get("Retry-After") != "" || h.Get("Sec-Websocket-Accept") != "a" {
		t.Errorf("header %v", h)
	}
	for _, word := range []string{"hello ", "one", "two"} {
		if word != "hello " {
			_, _ = io.WriteString(c, word)
		}
		b := make([]byte, len(word))
		if _, err := io.ReadFull(r, b); err != nil || string(b) != word {
			t.Fatalf("%q, %v; want %q", b, err, word)
		}
	}
	// It ends with the drain, which does not wait for it.
	e.stop()
	if _, err := r.ReadByte(); err == nil {
		t.Error("the websocket outlives the gateway")
	}
	if !strings.Contains(e.access.String(), "status=101") {
		t.Errorf("access log %q", e.access.String())
	}
	if n := e.gateway.rules.TakenOver.Len(); n != 0 {
		t.Errorf("%d connections are still registered", n)
	}
}

func TestEveryOtherUpgradeIsStripped(t *testing.T) {
	heads := make(chan string, 1)
	e := open(t, nil, rawUpstream(t, func(c net.Conn) {
		head, _ := readHead(c)
		heads <- head
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
	}))
	for _, header := range [][]string{
		{"Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA"},
		{"Connection: Upgrade", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA"},
		{"Connection: Upgrade", "Upgrade: H2C, websocket"},
		{"Connection: Upgrade", "Upgrade: websocket", "Upgrade: h2c"},
		{"Connection: Upgrade", "Upgrade: websocket/13"},
		{"Connection: Upgrade", "Upgrade: TLS/1.2"},
		{"Upgrade: websocket"},
		{"Connection: HTTP2-Settings", "HTTP2-Settings: x"},
		{"HTTP2-Settings: x"},
		{"HTTP2_Settings: x"},
	} {
		res := e.ask("GET /v1/wp/status", header...)
		head := strings.ToLower(<-heads)
		for _, gone := range []string{"upgrade", "h2c", "http2", "websocket"} {
			if strings.Contains(head, gone) {
				t.Errorf("%q: the upstream receives\n%s", header, head)
			}
		}
		want(t, res, http.StatusOK, "", wpPlugin)
	}
	// A websocket starts with GET.
	e.ask("POST /v1/wp/status", "Connection: Upgrade", "Upgrade: websocket", "Content-Length: 0")
	if head := <-heads; strings.Contains(head, "websocket") {
		t.Errorf("the upstream receives\n%s", head)
	}
}

func TestAnUnrequestedUpgradeIs502(t *testing.T) {
	e := open(t, nil, rawUpstream(t, func(c net.Conn) {
		readHead(c)
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
	}))
	want(t, e.ask("GET /v1/wp/status", "Connection: Upgrade", "Upgrade: h2c"), http.StatusBadGateway, "upstream_unavailable", wpPlugin)
}

func TestEventsArriveOneByOne(t *testing.T) {
	next := make(chan string)
	e := open(t, nil, behind(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.(http.Flusher).Flush()
		for event := range next {
			fmt.Fprintf(w, "data: %s\n\n", event)
		}
	}))
	res, err := http.Get(e.url("/api/v1/widget/events"))
	if err != nil {
		t.Fatal(err) // the header has arrived before the first event
	}
	defer res.Body.Close()
	r := bufio.NewReader(res.Body)
	for _, event := range []string{"one", "two", "three"} {
		next <- event // the upstream itself does not flush
		if event == "one" {
			continue
		}
	}
	close(next)
	for _, event := range []string{"one", "two", "three"} {
		line, err := r.ReadString('\n')
		if err != nil || line != "data: "+event+"\n" {
			t.Fatalf("%q, %v", line, err)
		}
		_, _ = r.ReadString('\n')
	}
	if got := limitOf(res.Header); got != "1000001" {
		t.Errorf("X-RateLimit-Limit %q", got)
	}
}

func TestAnEventArrivesBeforeTheNextIsWritten(t *testing.T) {
	for _, kind := range []string{"text/event-stream", "text/event-stream; charset=utf-8", "application/x-ndjson"} {
		received := make(chan bool)
		e := open(t, nil, behind(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			for range 3 {
				_, _ = io.WriteString(w, "event\n")
				w.(http.Flusher).Flush()
				<-received
			}
		}))
		for _, over := range []*http.Client{http.DefaultClient, h2c(t)} {
			res, err := over.Get(e.url("/api/v1/widget/events"))
			if err != nil {
				t.Fatal(err)
			}
			r := bufio.NewReader(res.Body)
			for range 3 {
				if line, err := r.ReadString('\n'); err != nil || line != "event\n" {
					t.Fatalf("%s: %q, %v", kind, line, err)
				}
				received <- true
			}
			if _, err := r.ReadByte(); err != io.EOF {
				t.Errorf("%s: %v after the last event", kind, err)
			}
			res.Body.Close()
		}
	}
}

// h2c returns a client that speaks HTTP/2 without TLS, with prior knowledge.
func h2c(t testing.TB) *http.Client {
	t.Helper()
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: p}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func TestLargeBodiesAreForwardedUnchanged(t *testing.T) {
	body := make([]byte, 4<<20)
	for i := range body {
		body[i] = byte(i * i >> 7)
	}
	e := open(t, nil, behind(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Length", fmt.Sprint(r.ContentLength))
		w.Header().Set("Content-Encoding", "gzip") // false, but not inspected
		hash := sha256.New()
		b, err := io.ReadAll(io.TeeReader(r.Body, hash))
		if err != nil || r.Header.Get("Accept-Encoding") != "gzip" {
			w.WriteHeader(http.StatusTeapot)
		}
		_, _ = w.Write(b)
		_, _ = w.Write(hash.Sum(nil))
	}))
	sum := sha256.Sum256(body)
	for name, client := range map[string]*http.Client{"HTTP/1.1": {Transport: &http.Transport{}}, "HTTP/2": h2c(t)} {
		for length, r := range map[string]io.Reader{fmt.Sprint(len(body)): bytes.NewReader(body), "-1": io.MultiReader(bytes.NewReader(body))} {
			req, err := http.NewRequest(http.MethodPut, e.url("/v1/wp/documents"), r)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Accept-Encoding", "gzip")
			res, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(res.Body)
			res.Body.Close()
			if err != nil || !bytes.Equal(got, append(slices.Clone(body), sum[:]...)) {
				t.Errorf("%s, length %s: %d bytes and %v", name, length, len(got), err)
			}
			if res.StatusCode != http.StatusOK || res.Header.Get("X-Length") != length || res.Header.Get("Content-Encoding") != "gzip" {
				t.Errorf("%s, length %s: %d %v", name, length, res.StatusCode, res.Header)
			}
		}
	}
}

func TestTrailersPass(t *testing.T) {
	e := open(t, nil, behind(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Trailer", "X-Announced")
		_, _ = io.WriteString(w, "body")
		w.Header().Set("X-Announced", r.Trailer.Get("X-Sent"))
		w.Header().Set(http.TrailerPrefix+"X-Late", "late"+r.Trailer.Get("X-Forwarded-For"))
	}))
	for name, client := range map[string]*http.Client{"HTTP/1.1": {Transport: &http.Transport{}}, "HTTP/2": h2c(t)} {
		req, err := http.NewRequest(http.MethodPost, e.url("/v1/wp/documents"), io.MultiReader(strings.NewReader("x")))
		if err != nil {
			t.Fatal(err)
		}
		req.Trailer = http.Header{"X-Sent": {"sent"}}
		// The engine rejects trailers that a backend could take for fields of the
		// head.
		if name == "HTTP/2" || !e.gateway.Fast() {
			req.Trailer.Set("X-Forwarded-For", "6.6.6.6")
		}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text(t, res)
		if res.Trailer.Get("X-Announced") != "sent" || res.Trailer.Get("X-Late") != "late" {
			t.Errorf("%s: trailers %v", name, res.Trailer)
		}
	}
}

func TestAnInformationalAnswerPasses(t *testing.T) {
	e := open(t, nil, behind(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</style.css>")
		w.WriteHeader(http.StatusEarlyHints)
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
	}))
	var hints []int
	trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
		hints = append(hints, code)
		return nil
	}}
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodPost, e.url("/api/v1/widget/leads"), strings.NewReader("asked for"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Expect", "100-continue")
	res, err := (&http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Hour}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if body := text(t, res); body != "asked for" || !slices.Contains(hints, 100) || !slices.Contains(hints, 103) {
		t.Errorf("body %q after %v", body, hints)
	}
	want(t, res, http.StatusOK, "", leads)
}

// If a request is refused, its body is not requested.
func TestARefusedRequestsBodyIsNotRequested(t *testing.T) {
	e := open(t, nil, func(o *Options) {
		behind(t, func(http.ResponseWriter, *http.Request) {})(o)
	})
	c := e.dial()
	fmt.Fprint(c, "POST /v1/wp/%2f HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 1000000\r\n\r\n")
	line, err := textproto.NewReader(bufio.NewReader(c)).ReadLine()
	if err != nil || !strings.HasPrefix(line, "HTTP/1.1 400 ") {
		t.Errorf("%q, %v", line, err)
	}
}

// An upstream's own values of our fields are replaced, not repeated (D19).
func TestTheFieldsOccurOnceOnTheWire(t *testing.T) {
	e := open(t, nil, behind(t, func(w http.ResponseWriter, _ *http.Request) {
		for _, name := range []string{"X-RateLimit-Limit", "x-ratelimit-remaining", "X-Ratelimit-Reset", "Retry-After", "Date"} {
			w.Header()[name] = []string{"6", "7"}
		}
	}))
	c := e.dial()
	fmt.Fprint(c, "GET /v1/wp/status HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
	answer, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"X-RateLimit-Limit: 1000003", "X-RateLimit-Remaining: 1000002", "X-RateLimit-Reset: ", "Date: "} {
		if strings.Count(string(answer), "\r\n"+name) != 1 {
			t.Errorf("%q does not occur exactly once:\n%s", name, answer)
		}
	}
	if n := strings.Count(strings.ToLower(string(answer)), "\r\nx-ratelimit-"); n != 3 || strings.Contains(string(answer), "Retry-After") {
		t.Errorf("%d fields:\n%s", n, answer)
	}
}
