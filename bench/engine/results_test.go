package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// taken returns results of three rounds, in which Weir's figures are nginx's times a factor, except
// for the explicit ones, and HAProxy's are nginx's.
func taken(weir string, times float64, idle float64) *results {
	r := newResults("a machine", plan{rounds: 3, length: time.Second, idle: 10_000, rate: 5000})
	for round := range 3 {
		base := float64(10 * (round + 1)) // rounds differ more than contestants
		for _, name := range caseNames() {
			of := func(times float64) figures {
				return figures{cpuFigure: base * times, p99Figure: base * times, mibFigure: base / times, keptFigure: base / times,
					rateFigure: 1, busyFigure: 1, heldFigure: idle, peakFigure: 1, dialsFigure: base * times}
			}
			r.take(name, nginxName, of(1), nil)
			r.take(name, haproxyName, of(1), nil)
			if weir != soleName {
				r.take(name, stdName, figures{cpuFigure: 3.5 * base}, nil)
			}
			r.take(name, weir, of(times), nil)
		}
	}
	return r
}

func TestAimsFollowTheFigures(t *testing.T) {
	for _, c := range []struct {
		what  string
		times float64
		idle  float64
		unmet int
	}{
		{"a tenth less than nginx", 0.9, 60, 0},
		{"as nginx", 1, 60, 1},          // by TLS less is the aim
		{"a lot held", 0.9, 61, 1},      // with 10,000 connections of HTTP/1.1
		{"more held", 0.9, 201, 2},      // with those of HTTP/2 too
		{"a tenth more", 1.099, 60, 15}, // nor served, refused, HAProxy, rates, bodies, connections
		// nor p99, but at a constant rate, nor sessions nor keys, nor a third of net/http
		{"a fifth more", 1.2, 60, 27},
		{"a third more", 1.33, 60, 31}, // nor HTTP/2, nor p99 at a constant rate
	} {
		weir, rows := taken(autoName, c.times, c.idle).aims()
		var unmet []string
		for _, row := range rows {
			if row[4] == "**not met**" {
				unmet = append(unmet, row[0])
			}
		}
		if len(unmet) != c.unmet || len(rows) != 33 || weir != autoName {
			t.Errorf("%s: %d of %d aims of %s are not met, want %d of 33: %q", c.what, len(unmet), len(rows), weir, c.unmet, unmet)
		}
	}
}

// An aim holds with and without access logs.
func TestAnAimIsMetOnlyIfBothFiguresAre(t *testing.T) {
	r := newResults("a machine", plan{rounds: 1, length: time.Second})
	verdict := func(loud, silent float64, want string) {
		t.Helper()
		for name, v := range map[string]float64{servedCase: loud, servedCase + silentSuffix: silent} {
			r.Samples[name] = nil
			r.take(name, nginxName, figures{cpuFigure: 10}, nil)
			r.take(name, autoName, figures{cpuFigure: 10 * v}, nil)
		}
		if _, rows := r.aims(); len(rows) != 1 || strings.Join(rows[0][2:], " ") != want {
			t.Errorf("%v and %v: %q, want %q", loud, silent, rows, want)
		}
	}
	verdict(1, 0.9, "1× 0.9× met")
	verdict(1.1, 0.9, "1.1× 0.9× **not met**")
	verdict(0.9, 1.1, "0.9× 1.1× **not met**")
}

// What settlement costs is judged beside the same server that does not read the cost.
func TestSettlementIsJudged(t *testing.T) {
	for _, c := range []struct {
		field, body float64
		met         []string
	}{
		{1, 1, []string{"met", "met"}},
		{1.09, 1.24, []string{"met", "met"}},
		{1.11, 1.24, []string{"**not met**", "met"}},
		{1.09, 1.26, []string{"met", "**not met**"}},
	} {
		r := newResults("a machine", plan{rounds: 3, length: time.Second})
		for round := range 3 {
			base := float64(10 * (round + 1)) // rounds differ more than contestants
			for name, times := range map[string]float64{settledCase: c.field, jsonCase: c.body} {
				r.take(name, unsettledName, figures{cpuFigure: base}, nil)
				r.take(name, settledName, figures{cpuFigure: base * times}, nil)
			}
		}
		_, rows := r.aims()
		if len(rows) != 2 || rows[0][4] != c.met[0] || rows[1][4] != c.met[1] {
			t.Errorf("%v and %v times: %q, want %q", c.field, c.body, rows, c.met)
		}
	}
}

func TestTheDefaultEngineIsJudged(t *testing.T) {
	all := taken(soleName, 1, 1)
	for _, name := range []string{soleName, stdName, autoName} {
		all.take(servedCase, name, figures{cpuFigure: 1}, nil)
		if weir, _ := all.aims(); weir != name {
			t.Errorf("%s is judged, want %s", weir, name)
		}
	}
}

func TestWhatFailedIsReportedAndNotJudged(t *testing.T) {
	r := taken(autoName, 1, 1)
	r.take(uploadCase, autoName, nil, os.ErrDeadlineExceeded)
	text := r.String()
	if !strings.Contains(text, "Not measured: upload: "+autoName+": i/o timeout") {
		t.Errorf("the failure is not reported:\n%s", text)
	}
	if _, rows := r.aims(); len(rows) != 32 {
		t.Errorf("%d aims are judged, want 32: all but the one that failed", len(rows))
	}
}

func TestResultsAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "figures")
	r := taken(autoName, 1.07, 50)
	if err := r.writeTo(path); err != nil {
		t.Fatal(err)
	}
	again, err := readResults(path)
	if err != nil {
		t.Fatal(err)
	}
	if again.String() != r.String() {
		t.Errorf("read again the page is\n%s\nwant\n%s", again, r)
	}
}

// The floor runs between the load and the upstream for bodies: if all three agree, the figures
// measure what they should.
func TestBodiesArriveWhole(t *testing.T) {
	file := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(file, make([]byte, bodyBytes), 0o600); err != nil {
		t.Fatal(err)
	}
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return l
	}
	upstream, front := listen(), listen()
	go serveBodies(upstream, file)
	go passUnread(front, upstream.Addr().String())
	s := &server{address: front.Addr().String(), pid: os.Getpid()}
	for what, one := range map[string]transfer{"up": upload, "down": download} {
		found, err := bodies(t.Context(), s, file, one, 50*time.Millisecond)
		if err != nil {
			t.Errorf("%s: %v", what, err)
		} else if found[mibFigure] <= 0 || found[peakFigure] <= 0 {
			t.Errorf("%s: %v", what, found)
		}
	}
}

func TestHeads(t *testing.T) {
	m, err := readHead(strings.NewReader("HTTP/1.1 429 Too Many\r\ncontent-length:  12 \r\n\r\nmore"), make([]byte, 100))
	if err != nil || m.status() != 429 || m.length != 12 || m.beyond != 4 {
		t.Errorf("read %+v, %v", m, err)
	}
	for _, bad := range []string{"HTTP/1.1 200 OK\r\n", strings.Repeat("x", 200), "HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n"} {
		if m, err := readHead(strings.NewReader(bad), make([]byte, 100)); err == nil {
			t.Errorf("%q was read as %+v", bad, m)
		}
	}
}
