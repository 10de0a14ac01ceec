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

// A store's memory is the resident memory of the process, including pages shared with a file, minus
// what the process had before it opened the store.

// residentBytes returns the process's resident memory.
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
		return 0, fmt.Errorf("read resident memory: /proc/self/status has no %s", field)
	}
	kib, err := strconv.ParseInt(words[0], 10, 64)
	return kib << 10, err
}

// forgetPeak resets the kernel's peak of resident memory.
func forgetPeak() error { return os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) }

// looks is how often the peak is read while a table grows beyond a million keys.
const looks = 200

// memory fills the store with the keys [from, to) and measures bytes a key: at rest, when all
// possible memory has been released, and at the worst moment of growing, once there are a million
// keys.
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
	if worst == 0 { // it did not grow beyond a million: the peak of the whole
		peak, err := status("VmHWM:")
		if err != nil {
			return err
		}
		worst = float64(peak-c.resident) / float64(to)
	}
	if c.contestant.name != floorName { // it has a fixed size
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
