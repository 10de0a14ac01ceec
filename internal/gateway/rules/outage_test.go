package rules

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/internal/logtest"
	"github.com/weirlimit/weir/internal/upstream"
)

// lines are what the log has of a site's outage.
type lines struct {
	logtest.Buffer
	rules *Rules
	site  *Site
}

func newLines(t *testing.T, host string) *lines {
	pool, err := upstream.New(upstream.Options{Addresses: []upstream.Address{address}, Connect: 1, Header: 1, Stall: 1, Idle: 1,
		Dial: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("refused") }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pool.Close() })
	l := &lines{site: &Site{Host: host, Pool: pool}}
	l.rules = &Rules{Options: Options{Log: slog.New(slog.NewJSONHandler(l, nil)), Sites: []*Site{l.site}}}
	return l
}

var address = upstream.Address{TLS: true, Host: "192.0.2.1:443"}

func (l *lines) fail(err error) { l.rules.NoUpstream(l.site, "GET", address, err) }

func (l *lines) count() int { return strings.Count(l.String(), "\n") }

// last returns the last line without its time. A key that occurs twice is an error.
func (l *lines) last(t *testing.T) string {
	t.Helper()
	all := strings.Split(strings.TrimSpace(l.String()), "\n")
	line := all[len(all)-1]
	seen := map[string]bool{}
	for _, m := range jsonKey.FindAllStringSubmatch(line, -1) {
		if seen[m[1]] {
			t.Errorf("the key %s occurs twice in %s", m[1], line)
		}
		seen[m[1]] = true
	}
	_, rest, _ := strings.Cut(line, `"msg":`)
	return rest
}

func TestAnOutageHasALineOfEachKindAndASummary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLines(t, "api.example.com")
		for i := range 3000 { // 30 s
			if i%3 == 0 {
				l.fail(os.ErrDeadlineExceeded)
			} else {
				l.fail(errors.New("refused"))
			}
			if i == 0 {
				const want = `"the upstream did not answer in time","site":"api.example.com","method":"GET","upstream":"https://192.0.2.1:443","error":"i/o timeout"}`
				if got := l.last(t); got != want {
					t.Errorf("first the log has\n%s, want\n%s", got, want)
				}
			}
			time.Sleep(10 * time.Millisecond)
		}
		if got := l.last(t); l.count() != 2 || !strings.HasPrefix(got, `"the upstream is not available","site":"api.example.com"`) {
			t.Errorf("during the outage the log has %d lines, want one of each kind: %s", l.count(), got)
		}
		time.Sleep(outageQuiet)
		synctest.Wait()
		const want = `"no request to the upstream has failed for 10s","site":"api.example.com","answered_502":2000,"answered_504":1000,"lasted_ms":29990,"last_error":"refused"}`
		if got := l.last(t); l.count() != 3 || got != want {
			t.Errorf("after it the log has %d lines, the last is\n%s, want 3, and\n%s", l.count(), got, want)
		}
		if all := l.site.AllUnanswered(); all[502] != 2000 || all[504] != 1000 {
			t.Errorf("counted %v", all)
		}
		l.fail(errors.New("refused"))
		time.Sleep(2 * outageQuiet)
		synctest.Wait()
		if l.count() != 4 {
			t.Errorf("a single request has one line:\n%s", l)
		}
	})
}

// The summary does not read like a recovery if no address has answered. A site without a host has
// its name in the metrics, and no address is named if none could be connected to.
func TestASummaryReportsThatAllAddressesAreStillDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLines(t, "")
		for range 2 {
			_, err := l.site.Pool.Take(t.Context(), upstream.Want{})
			l.rules.NoUpstream(l.site, "GET", upstream.Address{}, err)
		}
		if got := l.last(t); !strings.HasPrefix(got, `"the upstream is not available","site":"*","method":"GET","error":"`) || !strings.Contains(got, "https://192.0.2.1:443") {
			t.Errorf("first the log has\n%s", got)
		}
		time.Sleep(2 * outageQuiet)
		synctest.Wait()
		if got := l.last(t); !strings.HasPrefix(got, `"no request to the upstream has failed for 10s, but all of its addresses are still down","site":"*","answered_502":2`) {
			t.Errorf("at its end the log has\n%s", got)
		}
	})
}

// Requests go on while the log is slow: whoever writes to it holds no lock that they take.
func TestASlowLogStopsNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLines(t, "api.example.com")
		written := 0
		l.rules.Log = slog.New(slog.NewTextHandler(lineFunc(func() {
			written++
			if !l.site.outage.mu.TryLock() {
				t.Error("a line is written while requests wait")
				return
			}
			l.site.outage.mu.Unlock()
		}), nil))
		for range 600 {
			l.fail(errors.New("refused"))
			time.Sleep(time.Second)
		}
		time.Sleep(2 * outageQuiet)
		synctest.Wait()
		l.fail(errors.New("refused"))
		l.fail(errors.New("refused"))
		l.rules.EndOutages()
		if written < 5 { // two beginnings, a notice and two ends
			t.Errorf("%d lines", written)
		}
	})
}

// A lineFunc is called for each line of a log.
type lineFunc func()

func (f lineFunc) Write(p []byte) (int, error) { f(); return len(p), nil }

func TestALongOutageIsReportedNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLines(t, "api.example.com")
		for range 3600 {
			l.fail(errors.New("refused"))
			time.Sleep(time.Second)
		}
		if n := l.count(); n < 8 || n > 13 || !strings.Contains(l.String(), "still") {
			t.Errorf("%d lines in an hour, want one each five minutes or a little more:\n%s", n, l)
		}
		before := l.count()
		l.rules.EndOutages()
		l.rules.EndOutages()
		if got := l.last(t); l.count() != before+1 || !strings.Contains(got, "the server ends") || !strings.Contains(got, `"answered_502":3600`) {
			t.Errorf("a server that ends writes one summary:\n%s", l)
		}
	})
}
