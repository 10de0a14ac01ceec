package rules

import (
	"testing"
	"time"
)

func TestRefusedCertificatesAreLoggedOnceAMinute(t *testing.T) {
	start := time.Unix(1e9, 0)
	var c refusedCertificates
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
		if log, others := c.note(start.Add(step.at)); log != step.log || others != step.others {
			t.Errorf("after %v: %t, %d others; want %t, %d", step.at, log, others, step.log, step.others)
		}
	}
}
