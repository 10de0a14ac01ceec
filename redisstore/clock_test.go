package redisstore

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Whatever the delays of requests and replies are, an estimate that is not ahead of the server's
// clock never is afterwards, and never runs back. After a reply without delay it is right within
// clockSlack.
func TestNoDelaySetsTheEstimatedClockBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ns := func(name string, from, to time.Duration) int64 {
			return rapid.Int64Range(int64(from), int64(to)).Draw(t, name)
		}
		var c clock
		difference := ns("difference", -time.Hour, time.Hour)
		local := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixNano()
		reply := func(there, back int64, precision time.Duration) {
			server := local + there + difference
			server -= server % int64(precision)
			c.correct(local, local+there+back, server, int64(precision))
			local += there + back
		}
		c.ahead.Store(difference - ns("behind", 0, time.Second))
		for range rapid.IntRange(1, 20).Draw(t, "replies") {
			before := c.ahead.Load()
			precision := rapid.SampledFrom([]time.Duration{time.Microsecond, time.Millisecond}).Draw(t, "precision")
			reply(ns("there", 0, 2*time.Second), ns("back", 0, 2*time.Second), precision)
			if after := c.ahead.Load(); after < before || after > difference {
				t.Fatalf("the server's clock is %d ns ahead, and was estimated at %d and then at %d", difference, before, after)
			}
		}
		reply(0, 0, time.Microsecond)
		if off := difference - c.ahead.Load(); off < 0 || off > int64(clockSlack+time.Microsecond) {
			t.Fatalf("the estimate is %d ns behind after a reply without delay", off)
		}
	})
}

// A clock that was set is followed by the next reply.
func TestTheEstimatedClockFollowsAStep(t *testing.T) {
	for _, step := range []time.Duration{-time.Hour, -time.Second, -2 * time.Millisecond, 150 * time.Millisecond, time.Hour} {
		var c clock
		local := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixNano()
		c.correct(local, local+1000, local, int64(time.Microsecond))
		c.correct(local, local+1000, local+int64(step), int64(time.Microsecond))
		if got := c.ahead.Load(); got != int64(step)-1000 {
			t.Errorf("after a step by %v the server's clock is estimated %d ns ahead", step, got)
		}
	}
}
