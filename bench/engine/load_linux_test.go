package main

import (
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A load sends every request that is due, and gets its answer, in each protocol: net/http serves
// it.
func TestALoadIsAnswered(t *testing.T) {
	w := &world{dir: t.TempDir()}
	if err := w.makeCertificate(); err != nil {
		t.Fatal(err)
	}
	cert, err := tls.LoadX509KeyPair(w.certBoth, w.certBoth)
	if err != nil {
		t.Fatal(err)
	}
	for name, how := range map[string]protocol{
		"HTTP/1.1":          {conns: 3, streams: 1},
		"HTTP/1.1 over TLS": {tls: true, conns: 3, streams: 1, trust: w.cert},
		"HTTP/2":            {tls: true, http2: true, conns: 2, streams: 5, trust: w.cert},
	} {
		t.Run(name, func(t *testing.T) {
			var served, others atomic.Int64
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				served.Add(1)
				if r.Host != "api.example.com" || r.URL.Path != smallPath || !strings.HasPrefix(name, r.Proto[:len("HTTP/1")]) && r.Proto != "HTTP/2.0" {
					others.Add(1)
				}
				io.WriteString(w, "hello\n")
			}))
			s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
			s.EnableHTTP2 = true
			if how.tls {
				s.StartTLS()
			} else {
				s.Start()
			}
			defer s.Close()
			l, err := openLoad(s.Listener.Addr().String(), how)
			if err != nil {
				t.Fatal(err)
			}
			defer l.close()
			for range 2 { // connections are used again
				found, err := l.drive(t.Context(), 2000, 100*time.Millisecond, 0)
				if err != nil || len(found.took) != 200 || found.stopped || found.delays.events != 400 {
					t.Errorf("%d of 200 requests were answered, stopped: %t, %d sends and reads, %v", len(found.took), found.stopped, found.delays.events, err)
				}
			}
			if served.Load() != 400 || others.Load() > 0 {
				t.Errorf("the server has served %d requests, want 400, and %d others", served.Load(), others.Load())
			}
		})
	}
}

// A load stops when it is certain that p99 is too long, and has all answers then.
func TestALoadStopsWhenP99IsTooLong(t *testing.T) {
	var served atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { served.Add(1) }))
	defer s.Close()
	l, err := openLoad(s.Listener.Addr().String(), protocol{conns: 2, streams: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	const all = 10_000
	// every answer takes longer than this
	found, err := l.drive(t.Context(), all, time.Second, time.Nanosecond)
	if err != nil || !found.stopped || len(found.took) <= all/100 || len(found.took) > all/50 || int64(found.sent) != served.Load() {
		t.Errorf("%d answers, %d served, stopped: %t, %v", len(found.took), served.Load(), found.stopped, err)
	}
	if found.p99() <= time.Nanosecond {
		t.Errorf("p99 is %v", found.p99())
	}
}

// A silentCaller sends nothing.
type silentCaller struct{}

func (silentCaller) send(time.Duration) error              { return nil }
func (silentCaller) flush() error                          { return nil }
func (silentCaller) receive(func(due time.Duration)) error { return nil }

// A send is late by what passed since it was due and there was room, a read by what passed since
// the answer can have come. A request that waited for the server makes no send late.
func TestALoadCountsItsOwnLateness(t *testing.T) {
	const past, future = time.Duration(0), 2 * time.Hour // the trial began an hour ago
	for _, c := range []struct {
		what         string
		from         time.Duration
		late, events int
	}{{"since an hour", past, 1, 1}, {"since a moment that is not over", future, 0, 1}} {
		r := &trialRun{load: &load{room: newRing[*openCaller](1)}, all: 1, begun: time.Now().Add(-time.Hour)}
		r.rate = 1
		r.room.push(&openCaller{caller: silentCaller{}})
		r.roomFrom = c.from
		if err := r.sendDue(); err != nil || r.sent != 1 || r.delays != (punctuality{c.events, c.late}) {
			t.Errorf("there is room %s: %d sent, %+v, %v, want %d late", c.what, r.sent, r.delays, err, c.late)
		}
		r.delays = punctuality{}
		r.cameFrom = c.from
		if r.answered(0); r.delays != (punctuality{c.events, c.late}) || len(r.took) != 1 || r.took[0] < time.Hour {
			t.Errorf("an answer may have come %s: %+v, %v, want %d late", c.what, r.delays, r.took, c.late)
		}
	}
}

// What is due in the first part of a search's trial is sent, and does not count.
func TestTheBeginOfATrialDoesNotCount(t *testing.T) {
	r := &trialRun{load: &load{room: newRing[*openCaller](2)}, all: 2, begun: time.Now().Add(-time.Hour), countFrom: time.Second}
	r.rate = 1
	one := &openCaller{caller: silentCaller{}}
	r.room.push(one)
	r.room.push(one)
	if err := r.sendDue(); err != nil || r.sent != 2 || r.delays.events != 1 {
		t.Errorf("%d sent, %+v, %v, want 2, one of which counts", r.sent, r.delays, err)
	}
	r.answered(0)
	r.answered(time.Second)
	if r.done != 2 || len(r.took) != 1 || r.slow != 1 {
		t.Errorf("%d answers, %d count, %d slow, want 2, 1 and 1", r.done, len(r.took), r.slow)
	}
}

// A server that answers something else is an error, not a figure.
func TestALoadRejectsOtherAnswers(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Error(w, "no", http.StatusTooManyRequests) }))
	defer s.Close()
	l, err := openLoad(s.Listener.Addr().String(), protocol{conns: 2, streams: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	if found, err := l.drive(t.Context(), 1000, 10*time.Millisecond, 0); err == nil {
		t.Errorf("%d answers of 429 are no error", len(found.took))
	}
}

// The upstream with small answers reports how many connections it has accepted.
func TestTheUpstreamCountsItsConnections(t *testing.T) {
	address, err := spareAddress()
	if err != nil {
		t.Fatal(err)
	}
	go answerSmall(address, []byte(smallAnswers["small"]))
	s := &server{address: address, pid: os.Getpid()}
	if err := s.await(t.Context()); err != nil {
		t.Fatal(err)
	}
	before, err := dials(address)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if status, err := ask(address, smallPath, ""); err != nil || status != 200 {
			t.Fatal(status, err)
		}
	}
	if after, err := dials(address); err != nil || after-before != 4 {
		t.Errorf("%d connections were counted, want 4: three and the one that asks; %v", after-before, err)
	}
}
