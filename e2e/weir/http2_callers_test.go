package weir

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// callersUpstream is a backend whose answers need what HTTP/2 has.
type callersUpstream struct {
	mu   sync.Mutex
	seen map[string]chan struct{} // events that a caller has
}

func newCallersUpstream(t *testing.T) string {
	t.Helper()
	u := &callersUpstream{seen: map[string]chan struct{}{}}
	s := httptest.NewServer(u)
	t.Cleanup(s.Close)
	return s.URL
}

// event is closed when a caller has reported an event.
func (u *callersUpstream) event(name string) chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.seen[name] == nil {
		u.seen[name] = make(chan struct{})
	}
	return u.seen[name]
}

// pattern returns n bytes that no mistake in order or length leaves the same sum and length of
// parts.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * 7 % 251)
	}
	return b
}

func sumOf(b []byte) (sum int) {
	for _, c := range b {
		sum += int(c)
	}
	return sum
}

const bigBody = 10 << 20

func (u *callersUpstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if servePage(w, r) {
		return
	}
	switch r.URL.Path {
	case "/echo":
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
	case "/big":
		_, _ = w.Write(pattern(bigBody))
	case "/trailers":
		w.Header().Set("Trailer", "X-Sum")
		fmt.Fprint(w, "ok")
		w.Header().Set("X-Sum", "7")
	case "/hints":
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		fmt.Fprint(w, "ok")
	case "/events": // each comes once the caller has the one before
		w.Header().Set("Content-Type", "text/event-stream")
		for n := range 3 {
			fmt.Fprintf(w, "data: %d\n\n", n+1)
			_ = http.NewResponseController(w).Flush()
			select {
			case <-u.event(fmt.Sprint(n + 1)):
			case <-r.Context().Done():
				return
			}
		}
	case "/seen":
		close(u.event(r.URL.RawQuery))
	default:
		fmt.Fprint(w, "ok")
	}
}

// report is what a caller that shows everything prints.
var report = fmt.Sprintf(`get: 200 ok
echo: 200 100000 %d
big: 200 %d %d
trailers: 200 ok 7
hints: 103 200
events: 1 2 3
limited: 200 200 429 0 true
`, sumOf(pattern(100000)), bigBody, sumOf(pattern(bigBody)))

// withoutInterim is a report of a caller that does not get to see interim answers and trailers.
func withoutInterim(report string) string {
	return strings.NewReplacer("ok 7", "ok", "103 200", "200").Replace(report)
}

// http2Callers are clients of HTTP/2, each with what it prints.
var http2Callers = []struct {
	name string
	call func(t *testing.T, url string) string
	want string
}{
	{"go", callByGo, report},
	{"node", func(t *testing.T, url string) string { return runProgram(t, "node", "testdata/http2/node.mjs", url) }, report},
	// Debian's Python: another one may lack the module
	{"httpx", func(t *testing.T, url string) string {
		return runProgram(t, "/usr/bin/python3", "testdata/http2/httpx_client.py", url)
	},
		withoutInterim(report)},
	{"curl", callByCurl, report},
	{"nghttp", callByNghttp, report},
}

// Clients in wide use get everything that HTTP/2 has, with TLS by ALPN and in clear by prior
// knowledge.
func TestClientsOfHTTP2GetEverything(t *testing.T) {
	cert, key := filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	if err := writeCertificate(cert, key); err != nil {
		t.Fatal(err)
	}
	for name, flags := range map[string][]string{"clear": nil, "TLS": {"--tls-cert", cert, "--tls-key", key}} {
		for _, caller := range http2Callers {
			t.Run(name+"/"+caller.name, func(t *testing.T) {
				policy := policyFile(t, "limiters:\n  - {name: limited, routes: [/limited], windows: [2 per day by ip]}\n  - {name: all, routes: [/*], windows: [1000 per day by ip]}\n")
				s := serveWeir(t, append([]string{"--policy", policy, "--upstream", newCallersUpstream(t)}, flags...)...)
				if got := caller.call(t, s.url); got != caller.want {
					t.Errorf("it prints\n%swant\n%s", got, caller.want)
				}
			})
		}
	}
}

// runProgram runs a program and returns what it prints.
func runProgram(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v (scripts/deps installs it)\n%s\n%s", name, strings.Join(args, " "), err, out, &problems)
	}
	return string(out)
}

func callByGo(t *testing.T, url string) string {
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: patience}
	var printed strings.Builder
	ask := func(method, path, body string) (res *http.Response, interim string) {
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
			interim += fmt.Sprint(code, " ")
			return nil
		}})
		r, err := http.NewRequestWithContext(ctx, method, url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		res, err = client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = res.Body.Close() })
		if res.ProtoMajor != 2 {
			t.Fatalf("it speaks %s", res.Proto)
		}
		return res, interim
	}
	read := func(res *http.Response, _ string) (*http.Response, []byte) {
		b, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res, b
	}
	res, body := read(ask("GET", "/get", ""))
	fmt.Fprintf(&printed, "get: %d %s\n", res.StatusCode, body)
	res, body = read(ask("POST", "/echo", string(pattern(100000))))
	fmt.Fprintf(&printed, "echo: %d %d %d\n", res.StatusCode, len(body), sumOf(body))
	res, body = read(ask("GET", "/big", ""))
	fmt.Fprintf(&printed, "big: %d %d %d\n", res.StatusCode, len(body), sumOf(body))
	res, body = read(ask("GET", "/trailers", ""))
	fmt.Fprintf(&printed, "trailers: %d %s %s\n", res.StatusCode, body, res.Trailer.Get("X-Sum"))
	res, interim := ask("GET", "/hints", "")
	fmt.Fprintf(&printed, "hints: %s%d\n", interim, res.StatusCode)
	res, _ = ask("GET", "/events", "")
	printed.WriteString("events:")
	for range 3 {
		var n int
		if _, err := fmt.Fscanf(res.Body, "data: %d\n\n", &n); err != nil {
			t.Fatalf("an event: %v", err)
		}
		fmt.Fprint(&printed, " ", n)
		read(ask("POST", fmt.Sprintf("/seen?%d", n), ""))
	}
	printed.WriteString("\nlimited:")
	for range 3 {
		res, _ = ask("GET", "/limited", "")
		fmt.Fprint(&printed, " ", res.StatusCode)
	}
	fmt.Fprintf(&printed, " %s %v\n", res.Header.Get("X-Ratelimit-Remaining"), res.Header.Get("Retry-After") > "0")
	return printed.String()
}

var (
	curlStatus  = regexp.MustCompile(`(?m)^HTTP/2 (\d+)`)
	curlField   = regexp.MustCompile(`(?m)^(x-sum|x-ratelimit-remaining|retry-after): (\d+)`)
	nghttpField = regexp.MustCompile(`(?m)recv \(stream_id=\d+\) (:status|x-sum|x-ratelimit-remaining|retry-after): (\d+)`)
)

func callByCurl(t *testing.T, url string) string {
	version := "--http2"
	if strings.HasPrefix(url, "http:") {
		version = "--http2-prior-knowledge"
	}
	dir := t.TempDir()
	upload := filepath.Join(dir, "upload")
	if err := os.WriteFile(upload, pattern(100000), 0o600); err != nil {
		t.Fatal(err)
	}
	// ask returns the statuses of an answer, its body, and the fields and trailers that are named.
	ask := func(path string, flags ...string) (statuses, body string, fields map[string]string) {
		head, out := filepath.Join(dir, "head"), filepath.Join(dir, "body")
		runProgram(t, "curl", append([]string{"-q", "-s", "-S", "-k", version, "--max-time", "60", "-D", head, "-o", out, url + path}, flags...)...)
		return readExchange(t, head, out, curlStatus, curlField)
	}
	return callByProgram(t, ask, []string{"--data-binary", "@" + upload}, func() io.ReadCloser {
		return started(t, "curl", "-q", "-s", "-N", "-k", version, "--max-time", "60", url+"/events")
	})
}

func callByNghttp(t *testing.T, url string) string {
	dir := t.TempDir()
	upload := filepath.Join(dir, "upload")
	if err := os.WriteFile(upload, pattern(100000), 0o600); err != nil {
		t.Fatal(err)
	}
	ask := func(path string, flags ...string) (statuses, body string, fields map[string]string) {
		head, out := filepath.Join(dir, "head"), filepath.Join(dir, "body")
		// -v alone prints bodies and frames together, so that each request is sent twice; only one
		// of them may change anything.
		if err := os.WriteFile(head, []byte(runProgram(t, "nghttp", append([]string{"-n", "-v", "--no-dep", url + path}, flags...)...)), 0o600); err != nil {
			t.Fatal(err)
		}
		body = ""
		if path != "/limited" && !strings.HasPrefix(path, "/seen") {
			body = runProgram(t, "nghttp", append([]string{"--no-dep", url + path}, flags...)...)
		}
		if err := os.WriteFile(out, []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
		return readExchange(t, head, out, regexp.MustCompile(`(?m)recv \(stream_id=\d+\) :status: (\d+)`), nghttpField)
	}
	return callByProgram(t, ask, []string{"-d", upload}, func() io.ReadCloser {
		// without stdbuf it prints events when there are many
		return started(t, "stdbuf", "-o0", "nghttp", "--no-dep", url+"/events")
	})
}

// callByProgram makes the report of a program that sends one request.
func callByProgram(t *testing.T, ask func(path string, flags ...string) (statuses, body string, fields map[string]string), post []string, events func() io.ReadCloser) string {
	var printed strings.Builder
	statuses, body, _ := ask("/get")
	fmt.Fprintf(&printed, "get: %s %s\n", statuses, body)
	statuses, body, _ = ask("/echo", post...)
	fmt.Fprintf(&printed, "echo: %s %d %d\n", statuses, len(body), sumOf([]byte(body)))
	statuses, body, _ = ask("/big")
	fmt.Fprintf(&printed, "big: %s %d %d\n", statuses, len(body), sumOf([]byte(body)))
	statuses, body, fields := ask("/trailers")
	fmt.Fprintf(&printed, "trailers: %s %s %s\n", statuses, body, fields["x-sum"])
	statuses, _, _ = ask("/hints")
	fmt.Fprintf(&printed, "hints: %s\n", statuses)
	stream := events()
	printed.WriteString("events:")
	for range 3 {
		var n int
		if _, err := fmt.Fscanf(stream, "data: %d\n\n", &n); err != nil {
			t.Fatalf("an event: %v", err)
		}
		fmt.Fprint(&printed, " ", n)
		ask(fmt.Sprintf("/seen?%d", n), post...)
	}
	_ = stream.Close()
	printed.WriteString("\nlimited:")
	for range 3 {
		statuses, _, fields = ask("/limited")
		fmt.Fprintf(&printed, " %s", statuses)
	}
	fmt.Fprintf(&printed, " %s %v\n", fields["x-ratelimit-remaining"], fields["retry-after"] > "0")
	return printed.String()
}

// readExchange reads what a program has written about an answer.
func readExchange(t *testing.T, head, out string, status, field *regexp.Regexp) (statuses, body string, fields map[string]string) {
	t.Helper()
	text, b := readText(t, head), readText(t, out)
	var all []string
	for _, m := range status.FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	fields = map[string]string{}
	for _, m := range field.FindAllStringSubmatch(text, -1) {
		fields[m[1]] = m[2]
	}
	return strings.Join(all, " "), b, fields
}

// started starts a program and returns what it prints, as it prints it. The program ends with the
// test.
func started(t *testing.T, name string, args ...string) io.ReadCloser {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() })
	return out
}
