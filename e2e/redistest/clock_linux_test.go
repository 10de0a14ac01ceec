package redistest_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirlimit/weir/e2e/redistest"
	"github.com/weirlimit/weir/storetest"
)

var _ storetest.Clock = (*redistest.Clock)(nil)

// connect returns a client that keeps its connection.
func connect(t *testing.T, s *redistest.Server) rueidis.Client {
	t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Addr()}, ForceSingleClient: true, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// serverTime returns the server's time, in microseconds since 1970.
func serverTime(ctx context.Context, client rueidis.Client) (int64, error) {
	answer, err := client.Do(ctx, client.B().Time().Build()).AsStrSlice()
	if err != nil {
		return 0, err
	}
	seconds, err := strconv.ParseInt(answer[0], 10, 64)
	if err != nil {
		return 0, err
	}
	micros, err := strconv.ParseInt(answer[1], 10, 64)
	return seconds*1e6 + micros, err
}

func TestTheServerUsesTheClock(t *testing.T) {
	s, clock := redistest.StartWithClock(t)
	client := connect(t, s)
	for _, step := range []time.Duration{
		0, 0, // it does not move
		// 999 ns, 1000 ns: the microsecond is rounded down
		time.Nanosecond, 210 * time.Nanosecond, time.Nanosecond,
		time.Microsecond, time.Second, 876_542 * time.Microsecond, -time.Microsecond, -time.Hour, 24 * time.Hour, -72 * time.Hour,
	} {
		clock.Advance(step)
		got, err := serverTime(t.Context(), client)
		if err != nil {
			t.Fatal(err)
		}
		if want := clock.Now().UnixMicro(); got != want {
			t.Errorf("after a step of %v the server's time is %d, the clock's %d", step, got, want)
		}
	}
}

func TestKeysExpireByTheClock(t *testing.T) {
	s, clock := redistest.StartWithClock(t)
	s.Do(t, "SET", "a", "1", "PX", "1000")
	for _, step := range []struct {
		advance time.Duration
		left    int64
	}{{999 * time.Millisecond, 1}, {-time.Hour, 3_600_001}, {time.Hour, 1}, {2 * time.Millisecond, -2}} {
		clock.Advance(step.advance)
		m := s.Do(t, "PTTL", "a")
		if left, err := m.AsInt64(); err != nil || left != step.left {
			t.Errorf("after another %v, %d ms are left, want %d (%v)", step.advance, left, step.left, err)
		}
	}
}

func TestTheServersHousekeepingGoesOnWhileTheClockIsStopped(t *testing.T) {
	s, clock := redistest.StartWithClock(t)
	for i := range 100 {
		s.Do(t, "SET", strconv.Itoa(i), "1", "PX", "1")
	}
	clock.Advance(time.Second)
	for start := time.Now(); s.Info(t, "stats")["expired_keys"] != "100"; { // no command reads them
		if time.Since(start) > 10*time.Second {
			t.Fatal("the keys do not expire")
		}
	}
}

func TestNoCommandSeesTheClockRunBack(t *testing.T) {
	const callers, asks = 4, 500
	s, clock := redistest.StartWithClock(t)
	client := connect(t, s)
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for range asks {
				clock.Advance(700 * time.Nanosecond)
				before := clock.Now().UnixMicro()
				got, err := serverTime(t.Context(), client)
				if after := clock.Now().UnixMicro(); err != nil || got < before || got > after {
					t.Errorf("the server's time is %d, between %d and %d (%v)", got, before, after, err)
					return
				}
			}
		})
	}
	all.Wait()
	if want := time.Unix(1_800_000_000, 123_456_789).Add(callers * asks * 700); !clock.Now().Equal(want) {
		t.Errorf("after all steps the clock is at %v, want %v", clock.Now(), want)
	}
}
