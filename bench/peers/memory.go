package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir/bench/page"
)

// What a store costs in memory is what the kernel says that the process has resident, pages shared with a file included,
// above what the process had before it opened the store.

// residentBytes is the process's resident memory now.
func residentBytes() (int64, error) { return status("VmRSS:") }

// status reads a size from /proc/self/status.
func status(field string) (int64, error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, fmt.Errorf("read resident memory: %w", err)
	}
	_, rest, ok := strings.Cut(string(text), "\n"+field)
	words := strings.Fields(rest)
	if !ok || len(words) == 0 {
		return 0, fmt.Errorf("read resident memory: /proc/self/status says nothing of %s", field)
	}
	kib, err := strconv.ParseInt(words[0], 10, 64)
	return kib << 10, err
}

// forgetPeak makes the kernel begin anew with the most that was resident.
func forgetPeak() error { return os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) }

// looks is how often the peak is read while a table grows, from a million keys on.
const looks = 200

// memory fills the store with the keys [from, to) and says what a key costs: steady, when all that can be given back has been,
// and at the worst moment of growing, once there are a million.
func (c *child) memory(from, to int, figures map[string]float64) error {
	first := min(to, 1_000_000)
	if err := c.fill(from, first); err != nil {
		return err
	}
	worst := 0.0
	for at, step := first, max(1, (to-first)/looks); at < to; at = min(to, at+step) {
		if err := forgetPeak(); err != nil {
			return err
		}
		next := min(to, at+step)
		if err := c.fill(at, next); err != nil {
			return err
		}
		peak, err := status("VmHWM:")
		if err != nil {
			return err
		}
		worst = max(worst, float64(peak-c.resident)/float64(next))
	}
	if worst == 0 { // it did not grow beyond a million: the peak of all of it
		peak, err := status("VmHWM:")
		if err != nil {
			return err
		}
		worst = float64(peak-c.resident) / float64(to)
	}
	if c.contestant.name != floorName { // which has its size from the beginning
		figures["peak"] = worst
	}
	debug.FreeOSMemory()
	now, err := residentBytes()
	figures["steady"] = float64(now-c.resident) / float64(to)
	return err
}

// collect measures a full garbage collection.
func (c *child) collect(figures map[string]float64) error {
	var took []float64
	for range 5 {
		start := time.Now()
		runtime.GC()
		took = append(took, time.Since(start).Seconds()*1000)
	}
	figures["ms"] = page.Median(took)
	return nil
}
