package replay

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/accesslog"
	"github.com/weirlimit/weir/policyfile"
)

// Required: at most 600 ns a line and no allocation, so that one core processes a million lines a
// second with the reader.
//
//	GOMAXPROCS=1 taskset -c 0 go test -run - -bench . ./internal/replay

// mixed returns lines of 100 000 callers on the contract's endpoints, 2 000 a second. A few callers
// send most of them.
func mixed(b testing.TB) []accesslog.Line {
	random := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(random, 1.1, 10, 99_999)
	targets := []struct{ method, target string }{
		{"POST", "/api/v1/widget/messages"}, {"GET", "/api/v1/widget/events?after=7"}, {"POST", "/api/v1/widget/init"},
		{"POST", "/api/v1/widget/typing"}, {"OPTIONS", "/api/v1/widget/messages"}, {"PUT", "/v1/wp/documents"}, {"GET", "/assets/widget.js"},
		{"GET", "/v1/wp/status"}, {"POST", "/api/v1/widget/init?agent_id=demo"},
	}
	lines := make([]accesslog.Line, 1<<20)
	peers := make([][]byte, 100_000)
	for i := range peers {
		peers[i] = fmt.Appendf(nil, "10.%d.%d.%d", i>>16, i>>8&255, i&255)
		if i%10 == 0 {
			peers[i] = fmt.Appendf(nil, "2001:db8:%x:%x::1", i>>8, i&255)
		}
	}
	agent := []byte("Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0 Safari/537.36")
	for i := range lines {
		t := targets[random.IntN(len(targets))]
		lines[i] = accesslog.Line{Time: noon*1e9 + int64(i)*500_000, Peer: peers[zipf.Uint64()], Method: []byte(t.method), Target: []byte(t.target), UserAgent: agent, HasAgent: true, Status: 200}
	}
	return lines
}

func benchmark(b *testing.B, o Options) {
	o.Policy = policyfile.Contract()
	r := start(b, o)
	lines := mixed(b)
	for i := range lines {
		if err := r.Add(&lines[i]); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	i, round := 0, int64(1)
	for b.Loop() {
		l := &lines[i]
		l.Time += int64(len(lines)) * 500_000
		if err := r.Add(l); err != nil {
			b.Fatal(err)
		}
		if i++; i == len(lines) {
			i = 0
			round++
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(r.lanes[0].refused)/float64(r.lanes[0].requests), "refused")
}

func BenchmarkAdd(b *testing.B)      { benchmark(b, Options{Touch: 0.001}) }
func BenchmarkAddPaced(b *testing.B) { benchmark(b, Options{Paced: true}) }

// BenchmarkLog processes a combined log from its bytes to its report. Required: a million lines a
// second on one core.
func BenchmarkLog(b *testing.B) {
	lines := mixed(b)
	var log bytes.Buffer
	for i := range lines {
		l := &lines[i]
		fmt.Fprintf(&log, "%s - - [%s] \"%s %s HTTP/1.1\" 200 512 \"https://shop.example/\" \"%s\"\n", l.Peer, time.Unix(0, l.Time).UTC().Format("02/Jan/2006:15:04:05 -0700"), l.Method, l.Target, l.UserAgent)
	}
	b.ReportAllocs()
	for b.Loop() {
		in, err := accesslog.Open(accesslog.Options{Stdin: bytes.NewReader(log.Bytes())})
		if err != nil {
			b.Fatal(err)
		}
		r := start(b, Options{Policy: policyfile.Contract(), Touch: 0.001})
		var l accesslog.Line
		for in.Next(&l) == nil {
			if err := r.Add(&l); err != nil {
				b.Fatal(err)
			}
		}
		if n := report(b, r).Log.Requests; n != int64(len(lines)) {
			b.Fatalf("%d requests", n)
		}
		in.Close()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(lines)), "ns/line")
}
