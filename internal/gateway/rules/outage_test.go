package rules

import (
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// lines are what the log has of a site's outage.
type lines struct {
	rules *Rules
	site  *Site

	mu  sync.Mutex
	all strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

func newLines() *lines {
	l := &lines{site: &Site{Host: "api.example.com"}}
	l.rules = &Rules{Options: Options{Log: slog.New(slog.NewTextHandler(l, nil)), Sites: []*Site{l.site}}}
	return l
}

func (l *lines) fail(err error) { l.rules.NoUpstream(l.site, "GET", "192.0.2.1:80", err) }

func (l *lines) count() int { return strings.Count(l.String(), "\n") }

func TestAnOutageHasALineAndASummary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLines()
		for i := range 3000 { // 30 s
			if i%3 == 0 {
				l.fail(os.ErrDeadlineExceeded)
			} else {
				l.fail(errors.New("refused"))
			}
			time.Sleep(10 * time.Millisecond)
		}
		if l.count() != 1 || !strings.Contains(l.String(), "did not answer in time") {
			t.Errorf("during the outage the log has\n%s", l)
		}
		time.Sleep(outageQuiet)
		synctest.Wait()
		for _, want := range []string{"host=api.example.com", "answered_502=2000", "answered_504=1000", "time=29.99s"} {
			if l.count() != 2 || !strings.Contains(l.String(), want) {
				t.Errorf("after it the log has no %s, or is not two lines:\n%s", want, l)
			}
		}
		if all := l.rules.AllUnanswered(); all[502] != 2000 || all[504] != 1000 {
			t.Errorf("counted %v", all)
		}
		l.fail(errors.New("refused"))
		time.Sleep(2 * outageQuiet)
		synctest.Wait()
		if l.count() != 3 {
			t.Errorf("a single request has one line:\n%s", l)
		}
	})
}

func TestALongOutageIsReportedNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLines()
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
		if l.count() != before+1 || !strings.Contains(l.String(), "answered_502=3600") {
			t.Errorf("a server that ends writes one summary:\n%s", l)
		}
	})
}
