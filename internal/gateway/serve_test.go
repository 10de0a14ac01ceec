package gateway

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/logtest"
)

func TestADrainFinishesRequestsInFlight(t *testing.T) {
	arrived, proceed := make(chan bool), make(chan bool)
	e := open(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/wp/slow" {
			return
		}
		arrived <- true
		<-proceed
		_, _ = io.WriteString(w, "finished")
	}), nil)
	idle := e.dial()
	ready := bufio.NewReader(idle)
	fmt.Fprint(idle, "GET /readyz HTTP/1.1\r\nHost: h\r\n\r\n")
	if res, err := http.ReadResponse(ready, nil); err != nil || res.StatusCode != http.StatusOK || text(t, res) != "ok\n" {
		t.Fatalf("%v, %v", res, err)
	}
	slow := e.dial()
	fmt.Fprint(slow, "GET /v1/wp/slow HTTP/1.1\r\nHost: h\r\n\r\n")
	<-arrived

	stopped := make(chan bool)
	go func() { e.stop(); close(stopped) }()
	eventually(t, "nothing more is accepted", func() bool {
		c, err := net.Dial("tcp", e.addr)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	if !e.gateway.rules.Draining.Load() {
		t.Error("it stopped accepting before it reported that it is not ready")
	}
	if _, err := ready.ReadByte(); err != io.EOF {
		t.Errorf("the idle connection: %v, want its end", err)
	}
	select {
	case <-stopped:
		t.Fatal("it did not wait for the request in flight")
	default:
	}
	proceed <- true
	res, err := http.ReadResponse(bufio.NewReader(slow), nil)
	if err != nil {
		t.Fatal(err)
	}
	if body := text(t, res); body != "finished" || !res.Close {
		t.Errorf("%q, close %v", body, res.Close)
	}
	<-stopped
	if err := <-e.result; err != nil {
		t.Errorf("Serve returned %v, want nil", err)
	}
	if !strings.Contains(e.access.String(), "path=/v1/wp/slow status=200 bytes=8") {
		t.Errorf("the last line is missing: %q", e.access.String())
	}
}

// A backend that holds requests open is notified of a drain: once, after /readyz
// has started to fail.
func TestTheBackendIsNotifiedOfADrain(t *testing.T) {
	arrived, drains := make(chan bool), make(chan bool, 2)
	var e *edge
	e = open(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		arrived <- true
		if draining := <-drains; !draining {
			t.Error("the backend is notified before the edge drains")
		}
		_, _ = io.WriteString(w, "what there is")
	}), func(o *Options) { o.OnDrain = func() { drains <- e.gateway.rules.Draining.Load() } })
	c := e.dial()
	fmt.Fprint(c, "GET /v1/wp/held HTTP/1.1\r\nHost: h\r\n\r\n")
	<-arrived
	e.stop() // blocks for Limits.Drain without the notification
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || text(t, res) != "what there is" {
		t.Errorf("%v, %v", res, err)
	}
	if len(drains) != 0 {
		t.Error("the backend is notified twice")
	}
	if strings.Contains(e.log.String(), "did not finish in time") {
		t.Errorf("log %q", e.log.String())
	}
}

func TestReadyzFailsDuringADrain(t *testing.T) {
	e := open(t, new(recorder), nil)
	e.gateway.rules.Draining.Store(true)
	res := e.ask("GET /readyz")
	if body := text(t, res); res.StatusCode != http.StatusServiceUnavailable || body != "not ready: draining\n" {
		t.Errorf("%d %q", res.StatusCode, body)
	}
	want(t, e.ask("GET /healthz"), http.StatusOK, "", "")
}

func TestADrainIsBounded(t *testing.T) {
	arrived := make(chan bool)
	e := open(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- true
		<-r.Context().Done()
	}), func(o *Options) { o.Limits.Drain = 20 * time.Millisecond })
	c := e.dial()
	fmt.Fprint(c, "GET /v1/wp/status HTTP/1.1\r\nHost: h\r\n\r\n")
	<-arrived
	e.stop() // blocks if the request is not cut off
	if !strings.Contains(e.log.String(), "did not finish in time") {
		t.Errorf("log %q", e.log.String())
	}
	if n := e.gateway.rules.Active.Load(); n != 0 {
		t.Errorf("%d requests are still in flight", n)
	}
}

func TestServeReturnsListenErrors(t *testing.T) {
	e := open(t, new(recorder), nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := e.gateway.Serve(t.Context(), l); err == nil || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("%v, want it to name the address", err)
	}
}

func TestAnAccessLogOutlivesTheGatewaysThatShareIt(t *testing.T) {
	// The access log belongs to its creator: two gateways may share it.
	var out logtest.Buffer
	access := NewAccessLog(&out, LogText, nil)
	for range 2 {
		e := open(t, new(recorder), func(o *Options) { o.AccessLog = access })
		e.ask("GET /v1/wp/status")
		e.stop()
	}
	if err := access.Close(); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "\n"); n != 2 {
		t.Errorf("%d lines, want 2:\n%s", n, out.String())
	}
}

// If a node counts without its store, it serves like any other, because taking it
// out of rotation would not help. Its /readyz reports that in one line.
func TestReadyzOfADegradedServerIs200WithTheReason(t *testing.T) {
	var why error
	e := open(t, new(recorder), func(o *Options) { o.Degraded = func() error { return why } })
	for _, test := range []struct {
		why  error
		want string
	}{
		{nil, "ok\n"},
		{errors.New("the store does not answer: connection refused"), "degraded: the store does not answer: connection refused\n"},
		{errors.Join(errors.New("one"), errors.New("two")), "degraded: one; two\n"},
		{nil, "ok\n"},
	} {
		why = test.why
		res := e.ask("GET /readyz")
		if body := text(t, res); res.StatusCode != http.StatusOK || body != test.want {
			t.Errorf("%d %q, want 200 %q", res.StatusCode, body, test.want)
		}
	}
	e.gateway.rules.Draining.Store(true)
	why = errors.New("the store does not answer")
	if res := e.ask("GET /readyz"); res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("%d while draining", res.StatusCode)
	}
}
