package answer_test

import (
	"fmt"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
)

// What a request has cost is reported once, with the caller that was observed, as soon as it is
// known, and at the latest when the request has ended.
func TestWhatARequestHasCostIsReportedOnce(t *testing.T) {
	fromHeader := func(l *weir.Limiter) {
		l.Actual, l.InFlight = weir.Reading{Form: weir.ReadHeader, Name: "X-Cost"}, inFlight(5)
	}
	byStatus := func(l *weir.Limiter) { l.Count = weir.Count{Statuses: []weir.Statuses{{Low: 401, High: 401}}} }
	for _, test := range []struct {
		name   string
		change func(*weir.Limiter)
		fields []string
		want   string
	}{
		{"a cost in a field", fromHeader, []string{"X-Cost: 3"}, "[3 of 10 at the head]"},
		{"a cost above the reserve", fromHeader, []string{"X-Cost: 30"}, "[30 of 10 at the head]"},
		{"a cost that is not told", fromHeader, nil, "[]"},
		{"a status that is not counted", byStatus, nil, "[0 of 10 at the head]"},
		{"nothing that can change it", func(*weir.Limiter) {}, nil, "[]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, when, observed := []string{}, "at first", ""
			d := open(t, settling(test.change), answer.Options{
				Observe: func(o answer.Observation) { observed = string(o.Who) },
				Spent: func(s answer.Spending) {
					got = append(got, fmt.Sprintf("%d of %d %s", s.Used, s.Reserved, when))
					if string(s.Who) != observed || observed == "" || s.Limiter != "chat" || s.Decision.Now == 0 {
						t.Errorf("it is reported as %+v", s)
					}
				},
			})
			a, _ := d.ask(from("192.0.2.7", ""), chat)
			when = "at the head"
			d.judge.Head(t.Context(), a, 200, head(test.fields...))
			when = "at the end"
			d.judge.Served(t.Context(), a)
			d.judge.End(t.Context(), a)
			d.judge.End(t.Context(), a)
			if fmt.Sprint(got) != test.want {
				t.Errorf("%v is reported, want %s", got, test.want)
			}
		})
	}
}

// A handler reports what it has spent after the head.
func TestWhatAHandlerHasSpentIsReported(t *testing.T) {
	var got []int64
	d := open(t, settling(func(*weir.Limiter) {}), answer.Options{
		Observe: func(answer.Observation) {}, Spent: func(s answer.Spending) { got = append(got, s.Used) },
	})
	a, _ := d.ask(from("192.0.2.7", ""), chat)
	d.judge.Head(t.Context(), a, 200, head())
	if err := d.judge.Spent(t.Context(), a, 4); err != nil || fmt.Sprint(got) != "[4]" {
		t.Errorf("%v, and %v is reported, want [4]", err, got)
	}
}
