package gateway

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/logtest"
)

// If an upstream stalls in a body with a declared length, its connection is closed.
// A stream may be silent.
func TestAnUpstreamThatStallsInABodyIsClosed(t *testing.T) {
	release := make(chan struct{})
	e := open(t, nil, func(o *Options) {
		rawUpstream(t, func(c net.Conn) {
			readHead(c)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"+strings.Repeat("half", 10<<10))
			<-release
		})(o)
		o.Limits.Stall = 100 * time.Millisecond
	})
	defer close(release)
	c := e.dial()
	fmt.Fprint(c, "GET /v1/wp/status HTTP/1.1\r\nHost: h\r\n\r\n")
	// Until the connection ends.
	if answer, _ := io.ReadAll(c); !strings.Contains(string(answer), "half") {
		t.Errorf("%q", answer)
	}
}

// If the upstream sends no Content-Type, neither does the gateway: a guess could
// override the page's ban on sniffing.
func TestAnUndeclaredTypeStaysUndeclared(t *testing.T) {
	e := open(t, nil, rawUpstream(t, func(c net.Conn) {
		readHead(c)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n<html><script>x")
	}))
	res := e.ask("GET /v1/wp/status")
	if got, there := res.Header["Content-Type"]; there {
		t.Errorf("the answer has Content-Type %q", got)
	}
	if body := text(t, res); body != "<html><script>x" {
		t.Errorf("the body is %q", body)
	}
}

// If an upstream announces a trailer with the name of our fields, it is neither
// sent nor announced (D19).
func TestATrailerThatIsNotSentIsNotAnnounced(t *testing.T) {
	e := open(t, nil, behind(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "X-RateLimit-Limit, X-Good, Retry-After")
		_, _ = io.WriteString(w, "body")
		w.Header().Set("X-RateLimit-Limit", "1")
		w.Header().Set("X-Good", "yes")
		w.Header().Set("Retry-After", "1")
	}))
	res := e.ask("GET /v1/wp/status")
	text(t, res)
	if len(res.Trailer) != 1 || res.Trailer.Get("X-Good") != "yes" {
		t.Errorf("the trailers are %v", res.Trailer)
	}
}

// If an HTTP/2 client is refused while it sends, it gets its answer, and not a
// reset stream.
func TestARefusedBodyOverHTTP2IsReadToItsEnd(t *testing.T) {
	rest, refused := io.Pipe()
	e := open(t, &recorder{}, nil)
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: &http.Transport{Protocols: protocols}}
	defer client.CloseIdleConnections()
	r, err := http.NewRequest("POST", e.url("/api/v1/widget/%5c"), rest)
	if err != nil {
		t.Fatal(err)
	}
	sent := make(chan error, 1)
	go func() {
		_, err := refused.Write(make([]byte, 100_000)) // all of it is read, though it is discarded
		sent <- err
		refused.Close()
	}()
	res, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if body := text(t, res); res.StatusCode != http.StatusBadRequest || body == "" {
		t.Errorf("answered %d %q", res.StatusCode, body)
	}
	if err := <-sent; err != nil {
		t.Errorf("the body was cut off: %v", err)
	}
}

// One log line reports that addresses may be wrong, not one for each request.
func TestAnUntrustedForwarderIsLoggedOnce(t *testing.T) {
	e := open(t, &recorder{}, nil)
	for range 3 {
		e.ask("GET /v1/wp/status", "X-Forwarded-For: 192.0.2.1")
	}
	if n := strings.Count(e.log.String(), "no proxy is trusted"); n != 1 {
		t.Errorf("logged %d times in %q", n, e.log.String())
	}
}

func TestAForwarderOutsideOfTheTrustedNetworksIsLoggedOnce(t *testing.T) {
	for _, c := range []struct {
		trusted, name, value string
		want                 int
	}{
		{"192.0.2.0/24", "X-Forwarded-For", "192.0.2.1", 1},
		{"192.0.2.0/24", "Forwarded", "for=192.0.2.1", 1},
		{"192.0.2.0/24", "X-Real-IP", "192.0.2.1", 0},
		{"127.0.0.0/8", "X-Forwarded-For", "192.0.2.1", 0},
		{"::ffff:127.0.0.0/104", "X-Forwarded-For", "192.0.2.1", 0},
	} {
		e := open(t, &recorder{}, func(o *Options) { o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix(c.trusted)} })
		for range 3 {
			e.ask("GET /v1/wp/status", strings.ToLower(c.name)+": "+c.value)
		}
		if n := strings.Count(e.log.String(), "a peer that is not in --trusted-proxies sends "+c.name); n != c.want {
			t.Errorf("%+v is logged %d times: %q", c, n, e.log.String())
		}
	}
}

// If a key pair could not be read, it is read again even with unchanged timestamps,
// because a change of permissions does not change them.
func TestAnUnreadableCertificateIsReadAgain(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	certificateFiles(t, certFile, keyFile)
	log := new(logtest.Buffer)
	now := time.Unix(1_800_000_000, 0)
	c, err := loadCertificates([]KeyPair{{certFile, keyFile}}, nil, textLog(log), func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	first, _ := c.get(nil)
	certificateFiles(t, certFile, keyFile)
	good, err := os.ReadFile(keyFile)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(keyFile)
	if err != nil {
		t.Fatal(err)
	}
	// With the same size and time, as after a change of permissions.
	restamp := func(key []byte) {
		if err := os.WriteFile(keyFile, key, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(keyFile, info.ModTime(), info.ModTime()); err != nil {
			t.Fatal(err)
		}
	}
	restamp(make([]byte, len(good)))
	for range 3 {
		now = now.Add(2 * time.Second)
		if got, _ := c.get(nil); got != first {
			t.Fatal("a key that cannot be read took the place of a good one")
		}
	}
	if n := strings.Count(log.String(), "cannot read"); n != 1 {
		t.Errorf("logged %d times in %q", n, log.String())
	}
	restamp(good)
	now = now.Add(2 * time.Second)
	if got, _ := c.get(nil); got == first {
		t.Error("the pair is not served, though it can be read now")
	}
}

func textLog(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

// A trailer with the name of a field of the same answer has its own value alone.
func TestATrailerIsNotAFieldOfTheSameName(t *testing.T) {
	for trailer, want := range map[string]string{"X-Check: last\r\n": "last", "": ""} {
		o := answering(t, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Check\r\nX-Check: first\r\n\r\n2\r\nok\r\n0\r\n"+trailer+"\r\n")
		e := open(t, nil, o.use)
		for _, client := range []*http.Client{http.DefaultClient, h2c(t)} {
			res := do(t, client, "GET", e.url("/v1/wp/x"), nil)
			body := text(t, res)
			if got := strings.Join(res.Trailer["X-Check"], ", "); body != "ok" || got != want || res.Header.Get("X-Check") != "first" {
				t.Errorf("%s: %s with the field %q and the trailer %q, want %q", res.Proto, body, res.Header["X-Check"], got, want)
			}
		}
	}
}
