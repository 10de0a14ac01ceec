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
	// With what is in use, so much may be there if requests leave enough garbage for a collection
	// every period. The slowest hundredth of requests notices several collections a second.
	busiest = 80 << 20
	period  = 2 * time.Second
	// percent of what is in use may gather if that is more: less than Go's 100, since ten thousand
	// connections take more memory in garbage than time to look at.
	percent = 40
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
	return &keeper{percent: 100, last: time.Now(), use: [4]metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"},
	}}
}

// A keeper has what was set last, and when. One goroutine at a time uses it.
type keeper struct {
	percent   int
	last      time.Time
	inUse     uint64 // bytes, after the last collection
	allocated uint64 // bytes, until then
	use       [4]metrics.Sample
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
	metrics.Read(k.use[:])
	inUse, allocated, now := k.use[0].Value.Uint64(), k.use[1].Value.Uint64(), time.Now()
	if inUse > 0 { // Go takes the percentage of stacks and globals too
		inUse += k.use[2].Value.Uint64() + k.use[3].Value.Uint64()
	}
	since, garbage := now.Sub(k.last), uint64(least)
	if inUse <= k.inUse+k.inUse/8 { // else connections are added, and not only requests
		garbage = garbageFor(inUse, allocated-k.allocated, since)
	}
	to := percentFor(inUse, garbage, since)
	k.last, k.inUse, k.allocated = now, inUse, allocated
	// It stops all goroutines for some microseconds, which a small difference is not worth.
	if 8*max(to-k.percent, k.percent-to) > k.percent {
		k.percent = to
		debug.SetGCPercent(to)
	}
}

// garbageFor returns how much garbage may gather at least beside so many bytes in use, where so
// many were allocated in that time.
func garbageFor(inUse, allocated uint64, since time.Duration) uint64 {
	inPeriod := float64(allocated) * float64(period) / float64(max(since, 1))
	return uint64(max(min(inPeriod, busiest-float64(inUse)), least))
}

// percentFor returns Go's GC percentage for so many bytes in use, of which garbage may gather so
// much at least, when the last collection was so long ago; 0 bytes in use are before the first.
func percentFor(inUse, garbage uint64, since time.Duration) int {
	// Below 4 MiB Go counts as if 4 were in use. The bound is for what comes into use suddenly: the
	// percentage holds for that until the next collection.
	most := min(garbage*100>>22, 800)
	if inUse == 0 || since > idle {
		most = 100
	}
	return int(min(max(garbage*100/max(inUse, 1), percent), most))
}
