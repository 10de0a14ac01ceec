package paced

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/docsync"
	"github.com/weirlimit/weir/pacer"
)

func TestAWaitThatIsTooLongEndsTheSync(t *testing.T) {
	until := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	wait := &pacer.WaitError{Reason: pacer.BudgetSpent, Wait: 3 * time.Hour, Until: until}
	client := &http.Client{Transport: bounded{failing{wait}}}
	_, err := client.Get("http://weir.example")
	var f *docsync.Failure
	if !errors.As(err, &f) || f.Error() != "budget spent, next window in 3 h 0 min: longer than --max-wait allows" || !strings.Contains(f.Hint, "after 2026-01-02 03:04:05 ") {
		t.Errorf("%v, %+v", err, f)
	}
	client.Transport = bounded{failing{io.ErrUnexpectedEOF}}
	if _, err := client.Get("http://weir.example"); errors.As(err, &f) || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("another error became %v", err)
	}
}

type failing struct{ err error }

func (f failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, f.err }

func TestTimeThatRequestsWaitTogetherCountsOnce(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	var w waits
	for range 4 { // as many as are in flight
		w.add(pacer.Wait{Reason: pacer.BudgetSpent, Until: at(40)}, start)
	}
	w.add(pacer.Wait{Reason: pacer.Probing, Until: at(1000)}, start)
	w.add(pacer.Wait{Reason: pacer.BudgetSpent, Until: at(50)}, at(20)) // ten seconds more
	w.add(pacer.Wait{Reason: pacer.BudgetSpent, Until: at(45)}, at(20)) // within the last
	for seconds, want := range map[int]time.Duration{0: 0, 30: 30 * time.Second, 50: 50 * time.Second, 90: 50 * time.Second} {
		if got := w.until(at(seconds)); got != want {
			t.Errorf("after %d s it has waited %v, want %v", seconds, got, want)
		}
	}
	w.add(pacer.Wait{Reason: pacer.BudgetSpent, Until: at(100)}, at(90))
	if got, want := w.until(at(100)), time.Minute; got != want {
		t.Errorf("in all it has waited %v, want %v", got, want)
	}
}
