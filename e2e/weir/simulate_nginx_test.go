package weir

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/weirlimit/weir/e2e/nginxtest"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/replay"
)

// nginxBefore is nginx before weir, with two logs: combined, and JSON with
// milliseconds.
const nginxBefore = `
log_format lines escape=json '{"msec":"$msec","remote_addr":"$remote_addr","request":"$request","status":$status,"request_time":$request_time,"http_user_agent":"$http_user_agent"}';
server {
	listen LISTEN;
	access_log %[1]s/combined.log combined;
	access_log %[1]s/lines.json lines;
	merge_slashes off;
	location / {
		proxy_pass %[2]s;
		proxy_set_header Host $http_host;
		proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
	}
}`

// Most windows last an hour, so that refusals do not depend on the second at which
// a busy machine logs a request. One lasts two seconds, and its requests come in
// bursts well inside it.
const nginxPolicy = `
limiters:
  - name: chat
    routes: [POST /chat]
    windows: [20 per hour by ip]
  - name: rest
    routes: [/v1/*]
    windows: [30 per hour by ip, 31 per 2 hours by ip+agent]
  - name: burst
    routes: [/burst]
    windows: [5 per 2 seconds by ip]
`

// A replay of nginx's log of real load gives the same results as the server before
// it, to the request: in each format, compressed or not, and from the server's own
// log, too.
func TestNginxLogsReplayAsServed(t *testing.T) {
	dir, policy := t.TempDir(), policyFile(t, nginxPolicy)
	s := serveWeir(t, "--upstream", accepting(t), "--policy", policy, "--trusted-proxies", "127.0.0.1", "--log-format", "json")
	proxy := nginxtest.Start(t, fmt.Sprintf(nginxBefore, dir, s.url))
	sent := mixedLoad(t, proxy.Addr)
	sent += bursts(t, proxy.Addr)
	handshake(t, proxy.Addr)
	served := measuredTotals(t, s)
	if err := proxy.Stop(); err != nil { // its logs are complete then
		t.Fatal(err)
	}
	s.end(t)
	own := filepath.Join(dir, "own.json")
	if err := os.WriteFile(own, []byte(requestLines(s.stderr.String())), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range (total{"chat refused": 80, "rest refused": 80, "burst refused": 6, "burst admitted": 10}) {
		if served[name] != want {
			t.Errorf("the server counts %d of %s, want %d: the load is not the intended one", served[name], name, want)
		}
	}
	wantReplayed(t, policy, filepath.Join(dir, "combined.log"), "combined", sent+1, served, "burst")
	wantReplayed(t, policy, filepath.Join(dir, "lines.json"), "nginx-json", sent+1, served)
	wantReplayed(t, policy, own, "weir-json", sent, served)

	whole := simulated(t, policy, filepath.Join(dir, "lines.json"))
	for _, packed := range []string{gzipped(t, filepath.Join(dir, "lines.json")), zstandard(t, filepath.Join(dir, "lines.json"))} {
		again := simulated(t, policy, packed)
		again.Log.Files = whole.Log.Files
		if a, b := asJSON(t, whole), asJSON(t, again); a != b {
			t.Errorf("%s gives another report:\n%s\nthan as it was:\n%s", packed, b, a)
		}
	}
}

// mixedLoad runs eight concurrent callers, each with its own address, and returns
// how many requests they sent.
func mixedLoad(t *testing.T, addr string) (sent int64) {
	t.Helper()
	requests := []struct {
		times  int
		method string
		path   string
		agent  string
	}{
		{30, http.MethodPost, "/chat", `say "hi" \ to me`},
		{25, http.MethodGet, "/v1/a%7Eb/../thing?q=%22x%22&ip=192.0.2.1", "Mozilla/5.0"},
		{15, http.MethodHead, "/V1//Thing;v=2", ""},
		{9, http.MethodGet, "/other/place", "curl/8"},
	}
	var all sync.WaitGroup
	for n := range 8 {
		client := clientAt(net.IPv4(127, 0, 0, byte(20+n)))
		for _, r := range requests {
			sent += int64(r.times)
			all.Go(func() {
				for range r.times {
					if err := drive(t, client, r.method, "http://"+addr+r.path, r.agent); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return sent
}

func clientAt(from net.IP) *http.Client {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: from}}
	return &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: 4}}
}

// drive sends one request with the target unchanged.
func drive(t *testing.T, client *http.Client, method, url, agent string) error {
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		return err
	}
	r.Header.Set("User-Agent", agent)
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return errors.Join(err, answer.Body.Close())
}

// bursts sends eight requests twice to a limiter of five per two seconds, each time
// just after a second has begun.
func bursts(t *testing.T, addr string) (sent int64) {
	t.Helper()
	client := clientAt(net.IPv4(127, 0, 0, 40))
	begin := time.Now().Truncate(time.Second).Add(time.Second + 50*time.Millisecond)
	for n := range 2 {
		<-time.After(time.Until(begin.Add(time.Duration(n) * 3 * time.Second)))
		for range 8 {
			if err := drive(t, client, http.MethodGet, "http://"+addr+"/burst", "burst"); err != nil {
				t.Fatal(err)
			}
			sent++
		}
	}
	return sent
}

// handshake sends a TLS handshake to nginx, which does not speak TLS.
func handshake(t *testing.T, addr string) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(c); err != nil { // its 400, and the end
		t.Fatal(err)
	}
}

// requestLines are the lines of weir's log that are about requests.
func requestLines(log string) string {
	var all strings.Builder
	for line := range strings.Lines(log) {
		if strings.Contains(line, `"method":`) {
			all.WriteString(line)
		}
	}
	return all.String()
}

// simulated is the report of a log.
func simulated(t *testing.T, policy, log string) *replay.Report {
	t.Helper()
	var out, errs bytes.Buffer
	if code := run([]string{"simulate", log, "--policy", policy, "--json"}, nil, strings.NewReader(""), &out, &errs); code != cli.Done {
		t.Fatalf("weir simulate %s: status %d\n%s", log, code, &errs)
	}
	r := &replay.Report{}
	if err := json.Unmarshal(out.Bytes(), r); err != nil {
		t.Fatal(err)
	}
	return r
}

// wantReplayed checks that a log's replay matches the server's counts, except for
// limiters whose windows are finer than the log's timestamps.
func wantReplayed(t *testing.T, policy, log, format string, lines int64, served total, but ...string) {
	t.Helper()
	r := simulated(t, policy, log)
	if r.Log.Lines != lines || r.Log.Malformed != 0 || r.Log.Formats[0] != format {
		t.Errorf("%s: %d lines of the format %s, %d malformed, want %d of %s: %v", log, r.Log.Lines, r.Log.Formats, r.Log.Malformed, lines, format, r.Log.Examples)
	}
	if r.Log.Requests != r.Log.Lines-r.Log.Without || r.Log.Without != lines-int64(8*79+16) {
		t.Errorf("%s: %d requests, and %d lines without one", log, r.Log.Requests, r.Log.Without)
	}
	if r.Policy.Unlimited != served[" admitted"] {
		t.Errorf("%s: %d under no limiter, the server counts %d", log, r.Policy.Unlimited, served[" admitted"])
	}
	for _, l := range r.Policy.Limiters {
		if admitted := l.Requests - l.Refused; l.Requests != served[l.Name+" admitted"]+served[l.Name+" refused"] {
			t.Errorf("%s: %s: %d requests, the server counts %d", log, l.Name, l.Requests, served[l.Name+" admitted"]+served[l.Name+" refused"])
		} else if len(but) > 0 && but[0] == l.Name {
			continue
		} else if l.Refused != served[l.Name+" refused"] || admitted != served[l.Name+" admitted"] {
			t.Errorf("%s: %s: %d admitted and %d refused, the server counts %d and %d", log, l.Name, admitted, l.Refused, served[l.Name+" admitted"], served[l.Name+" refused"])
		}
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// gzipped and zstandard write a compressed copy next to a file.
func gzipped(t *testing.T, path string) string {
	t.Helper()
	return packed(t, path, ".gz", func(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(w), nil })
}

func zstandard(t *testing.T, path string) string {
	t.Helper()
	return packed(t, path, ".zst", func(w io.Writer) (io.WriteCloser, error) { return zstd.NewWriter(w) })
}

func packed(t *testing.T, path, suffix string, by func(io.Writer) (io.WriteCloser, error)) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w, err := by(&b)
	if err == nil {
		_, err = w.Write(text)
		err = errors.Join(err, w.Close())
	}
	if err == nil {
		err = os.WriteFile(path+suffix, b.Bytes(), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path + suffix
}
