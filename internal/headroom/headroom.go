// Package headroom sets how much garbage gathers before it is collected, by how much memory is in
// use.
package headroom

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// least is how much garbage may gather at least, in bytes, in a process that is busy. By
	// default it is as much as is in use: a gateway that uses little would collect many times a
	// second, and each time is one in which the slowest requests wait.
	least = 16 << 20
	// percent of what is in use may gather if that is more: less than Go's 100, since ten thousand
	// connections take more memory in garbage than time to look at.
	percent = 60
	// idle is after how long without a collection a process has so little to do that garbage need
	// not gather. Go collects every two minutes then.
	idle = time.Minute
)

// Keep sets the headroom now, and anew after each collection until the process ends. It does
// nothing if GOGC is set, since an operator has decided then; GOMEMLIMIT holds with it as without.
//
// It is for a program's main function, once: Go has one headroom for all of a process.
func Keep() {
	if k := newKeeper(); k != nil {
		k.set()
		k.afterCollection()
	}
}

// newKeeper returns nil if GOGC is set.
func newKeeper() *keeper {
	if os.Getenv("GOGC") != "" {
		return nil
	}
	return &keeper{percent: 100, last: time.Now()}
}

// A keeper has what was set last, and when. One goroutine at a time uses it.
type keeper struct {
	percent int
	last    time.Time
	use     [1]metrics.Sample
}

// afterCollection sets the headroom once more whenever a collection has ended.
func (k *keeper) afterCollection() {
	collected := &struct{ _ *byte }{}
	runtime.AddCleanup(collected, func(k *keeper) {
		k.set()
		k.afterCollection()
	}, k)
}

func (k *keeper) set() {
	k.use[0].Name = "/gc/heap/live:bytes"
	metrics.Read(k.use[:])
	now := time.Now()
	to := percentFor(k.use[0].Value.Uint64(), now.Sub(k.last))
	k.last = now
	// It stops all goroutines for some microseconds, which a small difference is not worth.
	if 8*max(to-k.percent, k.percent-to) > k.percent {
		k.percent = to
		debug.SetGCPercent(to)
	}
}

// percentFor returns Go's GC percentage for so many bytes in use, when the last collection was so
// long ago; 0 bytes are before the first.
func percentFor(inUse uint64, since time.Duration) int {
	most := uint64(400) // below 4 MiB Go counts as if 4 were in use
	if inUse == 0 || since > idle {
		most = 100
	}
	return int(min(max(least*100/max(inUse, 1), percent), most))
}
