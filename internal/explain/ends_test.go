package explain

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
)

func TestWindowsThatEndByTheClockAreExplained(t *testing.T) {
	month, err := weir.ParseWindow("9 per calendar month in Europe/Berlin from day 15 by ip")
	if err != nil {
		t.Fatal(err)
	}
	minute, err := weir.ParseWindow("5 per minute by ip")
	if err != nil {
		t.Fatal(err)
	}
	p := weir.Policy{Limiters: []weir.Limiter{{Name: "l", Align: weir.AlignClock, Routes: []weir.Route{{Path: "/", Prefix: true}}, Windows: []weir.Window{month, minute}}}}
	e, err := Request(p, "GET", "/a", Caller{})
	if err != nil {
		t.Fatal(err)
	}
	why := strings.Join(e.Why, "\n")
	for _, want := range []string{month.String() + " ends with its calendar month", minute.String() + " ends at the next whole multiple"} {
		if !strings.Contains(why, want) {
			t.Errorf("the reasons do not contain %q:\n%s", want, why)
		}
	}
	if w := e.Windows[0]; w.PerSeconds != 0 || w.Calendar != "calendar month in Europe/Berlin from day 15" {
		t.Errorf("spelled out: %+v", w)
	}
}

// The windows that the seconds of a span touch are counted one by one, wherever the span begins.
func TestTheExposureOfWindowsByTheClockIsWhatASpanTouches(t *testing.T) {
	for _, per := range []int64{1, 2, 7, 10, 59, 60, 61, 90} {
		for _, span := range []int64{1, 2, 13, 60, 61, 120} {
			w, err := weir.ParseWindow(fmt.Sprintf("5 per %d seconds by ip", per))
			if err != nil {
				t.Fatal(err)
			}
			var most int64
			for begin := range per {
				touched := map[int64]bool{}
				for second := begin; second <= begin+span; second++ {
					touched[second/per] = true
				}
				most = max(most, 5*int64(len(touched)))
			}
			l := &weir.Limiter{Name: "l", Align: weir.AlignClock, Windows: []weir.Window{w}}
			if got := Exposure(l, Parties(weir.Policy{})[0], span); *got != (Bound{Requests: most, Exact: true}) {
				t.Errorf("%v in %d s: %v, want %d", w, span, got, most)
			}
		}
	}
}

func TestTheExposureOfSeveralWindowsByTheClock(t *testing.T) {
	address := Parties(weir.Policy{})[slices.IndexFunc(Parties(weir.Policy{}), func(p Party) bool { return p.Source == "ip" })]
	for _, test := range []struct {
		windows      []string
		minute, hour string
	}{
		{[]string{"20 per minute by ip", "100000 per calendar month in Europe/Berlin by ip"}, "40", "1220"},
		{[]string{"20 per minute by ip", "100 per calendar day by ip"}, "40", "200"},
		{[]string{"20 per minute by ip", "30 per hour by ip"}, "40", "60"},
		{[]string{"10 per calendar week by ip"}, "20", "20"},
	} {
		l := &weir.Limiter{Name: "l", Align: weir.AlignClock}
		for _, spec := range test.windows {
			w, err := weir.ParseWindow(spec)
			if err != nil {
				t.Fatal(err)
			}
			l.Windows = append(l.Windows, w)
		}
		if minute, hour := Exposure(l, address, 60).String(), Exposure(l, address, 3600).String(); minute != test.minute || strings.TrimPrefix(hour, "≤") != test.hour {
			t.Errorf("%v: %s in a minute and %s in an hour, want %s and %s", test.windows, minute, hour, test.minute, test.hour)
		}
	}
}
