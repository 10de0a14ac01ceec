//go:build !race

// One goroutine judges each log, which the race detector would only slow down.

package replay

import (
	"math"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/accesslog"
)

// A sent is one request of a caller.
type sent struct {
	at     int // seconds
	peer   netip.Addr
	agent  string
	follow bool // the window's limit applies to the caller
}

func (s *sent) line() *accesslog.Line {
	return &accesslog.Line{Time: (noon + int64(s.at)) * int64(time.Second), Peer: []byte(s.peer.String()), Method: []byte("GET"), Target: []byte("/"), UserAgent: []byte(s.agent), HasAgent: true}
}

// counted returns the caller that a key counts the request by.
func (s *sent) counted(key string) string {
	switch key {
	case "ip":
		return s.peer.String()
	case "agent":
		return s.agent
	case "ip+agent":
		return s.peer.String() + s.agent
	}
	return "everyone"
}

// touchedUnder replays requests under one limit, and returns how many callers that it applies to
// were refused something.
func touchedUnder(t rapid.TB, l weir.Limiter, limit int64, all []sent) int {
	l.Windows = []weir.Window{l.Windows[0]}
	l.Windows[0].Limit = limit
	touched := make(map[string]bool)
	i := 0
	r := start(t, Options{Policy: policyOf(l), OnVerdict: func(v Verdict) {
		if !v.Decision.Allowed && all[i].follow {
			touched[all[i].counted(l.Windows[0].Key.String())] = true
		}
	}})
	for i = range all {
		if err := r.Add(all[i].line()); err != nil {
			t.Fatal(err)
		}
	}
	report(t, r)
	return len(touched)
}

// The peak of a caller's demand is the lowest limit that does not touch it: the test tries every
// limit. Exempt callers and callers with limits of their own spend from the same budgets.
func TestTheRecommendedLimitIsTheLowestThatTouchesSoFew(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawOneWindow(t)
		key := l.Windows[0].Key.String()
		all := drawSent(t, &l)
		r := start(t, Options{Policy: policyOf(l)})
		callers := make(map[string]bool)
		for i := range all {
			if err := r.Add(all[i].line()); err != nil {
				t.Fatal(err)
			}
			if all[i].follow {
				callers[all[i].counted(key)] = true
			}
		}
		cost := max(l.Cost, 1)
		w := &r.lanes[0].ordered[0].windows[0]
		n := int64(len(callers))
		if n == 0 {
			if got := w.callers.recommend(1, cost, w.peak); got != nil {
				t.Fatalf("nobody follows the limit, and %+v is recommended", got)
			}
			return
		}
		limit := cost
		for k := n; k >= 0; k-- { // fewer and fewer may be touched
			for int64(touchedUnder(t, l, limit, all)) > k {
				limit++
			}
			share := float64(k) / float64(n)
			got := w.callers.recommend(share, cost, w.peak)
			if got == nil || got.Limit != limit || got.Touches.N != int64(touchedUnder(t, l, limit, all)) || got.Callers.N != n || got.Share > share {
				t.Fatalf("at most %d of %d callers: %+v, want limit %d", k, n, got, limit)
			}
		}
	})
}

func drawOneWindow(t *rapid.T) weir.Limiter {
	l := limiterOf(t, "all", rapid.SampledFrom([]string{"5 per 10 seconds by ip", "5 per minute by agent", "5 per 2 seconds by everyone", "5 per minute by ip+agent"}).Draw(t, "window"))
	l.Align = weir.Align(rapid.IntRange(0, 1).Draw(t, "align"))
	l.Cost = int64(rapid.IntRange(0, 3).Draw(t, "cost"))
	l.Windows[0].Limit = int64(rapid.IntRange(3, 9).Draw(t, "limit"))
	if rapid.Bool().Draw(t, "exempt") {
		l.Exempt = []weir.Who{{Network: netip.MustParsePrefix("192.0.2.1/32")}}
	}
	if w := &l.Windows[0]; rapid.Bool().Draw(t, "override") && !w.Key.Uses("everyone") {
		l.Overrides = []weir.Override{{Limit: int64(rapid.IntRange(3, 9).Draw(t, "own")), Per: w.Per, For: weir.Who{Network: netip.MustParsePrefix("192.0.2.2/31")}}}
	}
	return l
}

func drawSent(t *rapid.T, l *weir.Limiter) []sent {
	at := 0
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) sent {
		at += rapid.SampledFrom([]int{0, 0, 0, 0, 1, 2, 9, 30}).Draw(t, "later")
		s := sent{at: at, agent: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "agent"),
			peer: netip.AddrFrom4([4]byte{192, 0, 2, byte(rapid.IntRange(0, 5).Draw(t, "peer"))})}
		s.follow = true
		for _, w := range l.Exempt {
			s.follow = s.follow && !w.Network.Contains(s.peer)
		}
		for _, o := range l.Overrides {
			s.follow = s.follow && !o.For.Network.Contains(s.peer)
		}
		return s
	}), 1, 60).Draw(t, "sent")
}

func TestSharesRoundOnTheSafeSide(t *testing.T) {
	for n := int64(1); n < 500; n++ {
		for k := range n + 1 {
			if got := maxTouched(float64(k)/float64(n), n); got != k {
				t.Fatalf("%d of %d callers as a share of them are %d", k, n, got)
			}
		}
	}
	for _, c := range []struct {
		share float64
		n, k  int64
	}{{0.001, 999, 0}, {0.001, 1000, 1}, {0.001, 1999, 1}, {1, 7, 7}, {0, 7, 0}, {math.Nextafter(0.5, 0), 2, 0}, {0.29, 100, 29}} {
		if got := maxTouched(c.share, c.n); got != c.k {
			t.Errorf("%v of %d callers are %d, want %d", c.share, c.n, got, c.k)
		}
	}
}

func TestPeakBucketsAreInOrder(t *testing.T) {
	before := -1
	for _, p := range []uint32{0, 1, 7, 8, 9, 15, 16, 17, 18, 31, 32, 1000, 1 << 20, 1<<31 - 1, 1 << 31, 1<<32 - 1} {
		b := peakBucket(p)
		if b < before || b >= peakBuckets || topOf(b) < int64(p) || b > 0 && topOf(b-1) >= int64(p) {
			t.Errorf("%d is in bucket %d, up to %d", p, b, topOf(b))
		}
		before = b
	}
}

func TestEachWindowIsJudgedAsIfItStoodAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		both := limiterOf(t, "all", "5 per 10 seconds by ip", "7 per minute by agent")
		first, second := limiterOf(t, "all", "5 per 10 seconds by ip"), limiterOf(t, "all", "7 per minute by agent")
		all := drawSent(t, &both)
		share := float64(rapid.IntRange(1, 4).Draw(t, "share")) / 4
		recommended := func(l weir.Limiter) (out []Recommend) {
			r := start(t, Options{Policy: policyOf(l), Touch: share})
			for i := range all {
				if err := r.Add(all[i].line()); err != nil {
					t.Fatal(err)
				}
			}
			for _, w := range report(t, r).Policy.Limiters[0].Windows {
				out = append(out, *w.Recommend)
			}
			return out
		}
		together := recommended(both)
		if apart := append(recommended(first), recommended(second)...); !slices.Equal(together, apart) {
			t.Fatalf("together %+v, apart %+v", together, apart)
		}
	})
}
