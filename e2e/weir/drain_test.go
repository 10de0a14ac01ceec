package weir

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

var draining = regexp.MustCompile(`draining`)

// underWay starts a server with a request that its upstream holds until release is
// closed. The status of its answer arrives on answered; 0 if there is none.
func underWay(t *testing.T) (s *server, release chan struct{}, answered chan int) {
	t.Helper()
	held := make(chan struct{})
	release, answered = make(chan struct{}), make(chan int, 1)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(held)
		<-release
	}))
	t.Cleanup(upstream.Close)
	s = serveWeir(t, "--policy", "contract", "--upstream", upstream.URL)
	go func() {
		response, err := http.Get(s.url + "/api/v1/widget/slow")
		if err != nil {
			answered <- 0
			return
		}
		_ = response.Body.Close()
		answered <- response.StatusCode
	}()
	<-held
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if _, err := s.stderr.await(draining); err != nil {
		t.Fatal(err)
	}
	return s, release, answered
}

func TestADrainLetsRequestsFinish(t *testing.T) {
	s, release, answered := underWay(t)
	close(release)
	if status := <-answered; status != http.StatusOK {
		t.Errorf("the request in flight got status %d, want 200", status)
	}
	if code, err := s.wait(); err != nil || code != 0 {
		t.Errorf("weir serve ended with status %d, %v; want 0", code, err)
	}
}

func TestASecondSignalEndsAtOnce(t *testing.T) {
	s, release, answered := underWay(t)
	defer close(release)
	code, err := s.signal(syscall.SIGTERM)
	if err != nil || code != -1 {
		t.Errorf("weir serve ended with status %d, %v; want it ended by the signal", code, err)
	}
	if status := <-answered; status != 0 {
		t.Errorf("the request in flight got status %d from a server that has ended", status)
	}
}

// A client of a kept connection is told to use another, in place of losing its next request.
func TestAKeptConnectionIsAskedToGoBeforeItCloses(t *testing.T) {
	s := serveWeir(t, "--policy", "contract", "--drain-notice", "1m")
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r := bufio.NewReader(c)
	ask := func() *http.Response {
		t.Helper()
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: weir.example.com\r\n\r\n")
		response, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		return response
	}
	if response := ask(); response.Close {
		t.Error("the connection closes while the server serves")
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if _, err := s.stderr.await(draining); err != nil {
		t.Fatal(err)
	}
	// once the listener is closed; a server that does not announce it ends the test by its end
	for !ask().Close {
	}
	// nothing is left to ask
	if code, err := s.wait(); err != nil || code != 0 {
		t.Errorf("weir serve ended with status %d, %v; want 0", code, err)
	}
}
