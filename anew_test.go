package weir_test

import (
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// What begins anew is what a decider that has replaced its policy counts from zero.
func TestWindowsThatAnotherPolicyBeginsAnew(t *testing.T) {
	was := func() weir.Limiter {
		return limiter("l", "10 per calendar day in Europe/Berlin by ip", "5 per minute by ip", "90 requests per minute by ip")
	}
	for name, test := range map[string]struct {
		change func(l *weir.Limiter)
		want   []string
	}{
		"nothing": {func(*weir.Limiter) {}, nil},
		"a limit": {func(l *weir.Limiter) { l.Windows[0].Limit = 7 }, nil},
		"the mode, the cost and the routes": {func(l *weir.Limiter) {
			l.Mode, l.Cost, l.Routes = weir.Shadow, 2, []weir.Route{{Path: "/new", Prefix: true}}
		}, nil},
		"the order":  {func(l *weir.Limiter) { slices.Reverse(l.Windows) }, nil},
		"the zone":   {func(l *weir.Limiter) { l.Windows[0].Calendar.Zone = "Europe/Vienna" }, []string{"10 per calendar day in Europe/Vienna by ip"}},
		"the length": {func(l *weir.Limiter) { l.Windows[1].Per = time.Hour }, []string{"5 per hour by ip"}},
		"the key":    {func(l *weir.Limiter) { l.Windows[1].Key = weir.Key{{"token", "ip"}} }, []string{"5 per minute by token or ip"}},
		"the clock":  {func(l *weir.Limiter) { l.Align = weir.AlignClock }, []string{"5 per minute by ip", "90 requests per minute by ip"}},
		"the name": {func(l *weir.Limiter) { l.Name = "m" }, []string{
			"10 per calendar day in Europe/Berlin by ip", "5 per minute by ip", "90 requests per minute by ip"}},
		"one more": {func(l *weir.Limiter) { l.InFlight = weir.InFlight{Limit: 2, Key: weir.Key{{"ip"}}} }, []string{"2 in flight by ip"}},
	} {
		t.Run(name, func(t *testing.T) {
			now := was()
			test.change(&now)
			var got []string
			for l, w := range policyOf(now).Anew(policyOf(was())) {
				if l.Name != now.Name {
					t.Errorf("%v is of %s", w, l.Name)
				}
				got = append(got, w.String())
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("%q begin anew, want %q", got, test.want)
			}
			k := newReader(t, policyOf(was()), nil)
			k.visit("l")
			if err := k.d.Swap(policyOf(now)); err != nil {
				t.Fatal(err)
			}
			states, err := k.d.Inspect(t.Context(), now.Name, me)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range states {
				if anew := slices.Contains(got, s.Window.String()); anew != (s.Count == 0) {
					t.Errorf("%v counts %d", s.Window, s.Count)
				}
			}
		})
	}
}
