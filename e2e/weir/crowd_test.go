//go:build unix

package weir

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// crowd is a client that sends from one address.
func crowd(address string) *http.Client {
	from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	return &http.Client{Transport: &http.Transport{DialContext: from.DialContext, MaxIdleConnsPerHost: connections}}
}

// sessions starts n visitors' sessions.
func sessions(t *testing.T, url string, n int) []string {
	t.Helper()
	made := make([]string, n)
	for i := range made {
		made[i] = session(t, url)
	}
	return made
}

// One address asks for ten thousand streams. It gets its maximum, the others are
// refused, and other addresses are served as before.
func TestTenThousandStreamsFromOneAddress(t *testing.T) {
	const asked, held = 10_000, 64
	s := serveWeir(t, "--policy", plentyPolicy(t), "--access-log=off")
	visitors := sessions(t, s.url, 20) // enough for more streams than that
	client := crowd("127.0.0.9")
	defer client.CloseIdleConnections()

	var mu sync.Mutex
	open := map[*feedReader]string{} // the open streams, and their sessions
	var next, others atomic.Int64
	var all sync.WaitGroup
	for range connections {
		all.Go(func() {
			for i := next.Add(1) - 1; i < asked; i = next.Add(1) - 1 {
				visitor := visitors[i%int64(len(visitors))]
				f, err := openFeed(t.Context(), client, s.url, visitor, "")
				if err != nil {
					t.Error(err)
					return
				}
				if f.response.StatusCode == http.StatusOK {
					mu.Lock()
					open[f] = visitor
					mu.Unlock()
					continue
				}
				body, err := io.ReadAll(f.response.Body)
				_ = f.response.Body.Close()
				if err != nil || f.response.StatusCode != http.StatusConflict || !strings.Contains(string(body), `"conflict"`) || f.response.Header.Get("X-RateLimit-Remaining") == "" {
					t.Errorf("stream %d is answered %d %v %s, %v", i+1, f.response.StatusCode, f.response.Header, body, err)
					return
				}
			}
		})
	}
	served, done := make(chan error, 1), make(chan struct{})
	go func() { // a caller at another address
		other := session(t, s.url)
		for {
			select {
			case <-done:
				served <- nil
				return
			default:
			}
			if _, err := lead(s.url, other); err != nil {
				served <- err
				return
			}
			others.Add(1)
		}
	}()
	all.Wait()
	close(done)
	if err := <-served; err != nil || others.Load() == 0 {
		t.Errorf("meanwhile another was served %d times, and then %v", others.Load(), err)
	}
	if len(open) != held {
		t.Errorf("%d streams are open, want %d", len(open), held)
	}
	t.Logf("%d refused, while another was served %d times", asked-len(open), others.Load())
	for _, visitor := range visitors {
		if err := reportEvent(s.url, visitor, "{}"); err != nil {
			t.Error(err)
		}
	}
	for f := range open {
		if err := f.want(1, 2); err != nil {
			t.Error(err)
		}
	}
	s.end(t)
}

// More than a thousand streams are open at once, each gets its own events, and a
// drain ends all of them properly.
func TestAThousandStreamsAreOpenAtOnce(t *testing.T) {
	const addresses, perAddress, perSession = 17, 64, 8
	s := serveWeir(t, "--policy", plentyPolicy(t), "--access-log=off")
	visitors := sessions(t, s.url, addresses*perAddress/perSession)
	before := resident(t, s.cmd.Process.Pid)

	var mu sync.Mutex
	var open []*feedReader
	var all sync.WaitGroup
	for a := range addresses {
		all.Go(func() {
			client := crowd(fmt.Sprintf("127.0.0.%d", 2+a))
			for i := range perAddress {
				f, err := openFeed(t.Context(), client, s.url, visitors[a*perAddress/perSession+i/perSession], "")
				if err == nil {
					err = f.want(1, 1)
				}
				if err != nil {
					t.Errorf("stream %d of %v: %v", i, a, err)
					return
				}
				mu.Lock()
				open = append(open, f)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if len(open) != addresses*perAddress {
		t.Fatalf("%d streams are open, want %d", len(open), addresses*perAddress)
	}
	t.Logf("a stream takes %d KiB of the server's memory", (resident(t, s.cmd.Process.Pid)-before)/len(open))
	for _, visitor := range visitors {
		if err := reportEvent(s.url, visitor, "{}"); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range open {
		if err := f.want(2, 2); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for _, f := range open {
		if _, err := f.next(); err != io.EOF {
			t.Fatalf("a stream ends with %v", err)
		}
	}
	if code, err := s.wait(); err != nil || code != 0 || strings.Contains(s.stderr.String(), "did not finish in time") {
		t.Errorf("weir serve ended with status %d, %v:\n%s", code, err, s.stderr)
	}
}

// resident returns a process's memory in KiB.
func resident(t *testing.T, pid int) (kib int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(status), "VmRSS:")
	if _, err := fmt.Sscan(after, &kib); err != nil {
		t.Fatal(err)
	}
	return kib
}

// Two clients never read their streams while thousands of events are reported.
// Reporting continues, other readers get every event, and the two are dropped after
// the timeout of one write.
func TestClientsThatNeverReadAreDropped(t *testing.T) {
	t.Parallel() // it waits for the timeout
	const reported = 2000
	// A session has a share of the storage.
	s := serveWeir(t, "--policy", plentyPolicy(t), "--max-data", "8GiB")
	visitor := session(t, s.url)
	request := "GET " + eventsPath + " HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\nAuthorization: Bearer " + visitor + "\r\n\r\n"
	deaf := narrow(t, s.url)
	if _, err := io.WriteString(deaf, request); err != nil {
		t.Fatal(err)
	}
	deaf2 := narrow(t, s.url)
	if err := askH2(deaf2, eventsPath, "accept", "text/event-stream", "authorization", "Bearer "+visitor); err != nil {
		t.Fatal(err)
	}
	f, err := openFeed(t.Context(), http.DefaultClient, s.url, visitor, "")
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan error, 1)
	go func() { read <- f.want(1, 1+reported) }()
	data := `{"type":"test","data":{"x":"` + strings.Repeat("x", 4000) + `"}}`
	report := call{method: http.MethodPost, path: eventsPath, body: data, header: map[string]string{"Authorization": "Bearer " + visitor}}
	for left := reported; left > 0; {
		for _, a := range flood(t, s.url, left, report) {
			switch a.status {
			case http.StatusAccepted:
				left--
			case http.StatusServiceUnavailable:
				// On a slow machine with so many writers an event may not be
				// stored.
			default:
				t.Fatalf("a report is answered %d", a.status)
			}
		}
	}
	if err := <-read; err != nil {
		t.Error(err)
	}
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		line := regexp.MustCompile(`method=GET path=/api/v1/widget/events .*proto=` + regexp.QuoteMeta(proto))
		if _, err := s.stderr.await(line); err != nil {
			t.Error(err)
		}
	}
	s.end(t)
}

// narrow opens a connection with small buffers.
func narrow(t *testing.T, url string) net.Conn {
	t.Helper()
	dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
		if e := c.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) }); e != nil {
			return e
		}
		return err
	}}
	c, err := dialer.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// askH2 sends a GET over HTTP/2 with prior knowledge, and reads nothing.
func askH2(c net.Conn, path string, fields ...string) error {
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		return err
	}
	f := http2.NewFramer(c, c)
	if err := f.WriteSettings(); err != nil {
		return err
	}
	var block strings.Builder
	enc := hpack.NewEncoder(&block)
	fields = append([]string{":method", "GET", ":scheme", "http", ":authority", "h", ":path", path}, fields...)
	for i := 0; i < len(fields); i += 2 {
		if err := enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}); err != nil {
			return err
		}
	}
	return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte(block.String()), EndStream: true, EndHeaders: true})
}
