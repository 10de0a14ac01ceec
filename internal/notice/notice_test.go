package notice_test

import (
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/notice"
)

func TestALimitAllowsOneLineAMinute(t *testing.T) {
	start := time.Unix(1e9, 0)
	var l notice.Limit
	for _, step := range []struct {
		at     time.Duration
		log    bool
		others int
	}{
		{0, true, 0},
		{0, false, 0},
		{time.Minute - time.Nanosecond, false, 0},
		{time.Minute, true, 2},
		{2 * time.Minute, true, 0},
	} {
		if log, others := l.Allow(start.Add(step.at)); log != step.log || others != step.others {
			t.Errorf("after %v: %t, %d others; want %t, %d", step.at, log, others, step.log, step.others)
		}
	}
}

func TestCallersOnTheInternetLeaveRoomForProxies(t *testing.T) {
	var p notice.Peers
	count := func(form string) (n int) {
		for range 3 {
			for i := range 20 {
				if p.Allow(netip.MustParseAddr(fmt.Sprintf(form, i))) {
					n++
				}
			}
		}
		return n
	}
	if n := count("2001:db8::%d"); n != 4 {
		t.Errorf("%d lines about public addresses, want 4", n)
	}
	if n := count("10.0.0.%d"); n != 4 {
		t.Errorf("%d lines about private addresses after them, want 4", n)
	}
	p = notice.Peers{}
	if n := count("fd00::%d"); n != 8 {
		t.Errorf("%d lines about private addresses alone, want 8", n)
	}
	if n := count("192.0.2.%d"); n != 0 {
		t.Errorf("%d lines about public addresses after them, want none", n)
	}
}

func TestAPeerIsNamedOnce(t *testing.T) {
	var p notice.Peers
	var n atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if p.Allow(netip.MustParseAddr("127.0.0.1")) {
				n.Add(1)
			}
		})
	}
	all.Wait()
	if n.Load() != 1 {
		t.Errorf("%d lines, want 1", n.Load())
	}
}
