package gateway

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/handover"
	"github.com/weirlimit/weir/internal/poller"
	"github.com/weirlimit/weir/memstore"
)

// While the counts are on their way to another process, or there, takes wait, and hold up no
// poller.
func TestCountsThatAreElsewhereHoldUpNoPoller(t *testing.T) {
	if testEngine != EngineAuto {
		return // net/http has a goroutine for each connection
	}
	const tries = 5 // see TestNoSlowPeerHoldsUpAPoller
	for try := 1; ; try++ {
		before := poller.Relieved()
		askedWhileCountsLeave(t)
		n := poller.Relieved() - before
		if n == 0 {
			return
		}
		if try == tries {
			t.Fatalf("a poller had to be relieved %d times", n)
		}
	}
}

func askedWhileCountsLeave(t *testing.T) {
	counts := handover.New(memstore.Options{Memory: 64 << 20, File: filepath.Join(t.TempDir(), "counters"), Log: slog.New(slog.DiscardHandler)})
	if err := counts.Open(nil); err != nil {
		t.Fatal(err)
	}
	defer counts.Close()
	d, err := weir.New(testPolicy(t), counts, weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e := open(t, nil, func(o *Options) {
		behind(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "quick") })(o)
		o.Decider = d
	})
	if !d.InProcess() {
		t.Error("the counts are here, and the limiter waits for them")
	}
	var asking []quick
	for range 8 {
		c := newQuick(e)
		c.ask(t)
		asking = append(asking, c)
	}
	if _, err := counts.Release(); err != nil {
		t.Fatal(err)
	}
	if d.InProcess() {
		t.Error("the counts have left, and the limiter does not wait for them")
	}
	for _, c := range asking {
		c.ask(t) // uncovered, so that the poller runs what follows
		if _, err := io.WriteString(c, "GET /v1/wp/x HTTP/1.1\r\nHost: weir.test\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
	}
	other := newQuick(e)
	for range 200 {
		other.ask(t)
	}
}
