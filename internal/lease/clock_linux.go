package lease

import (
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot reads the clock that also counts while the machine sleeps. Go calls the kernel for it,
// which is why a Clock does so rarely.
func sinceBoot() (now time.Duration, ok bool) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0, false
	}
	return time.Duration(t.Nano()), true
}
