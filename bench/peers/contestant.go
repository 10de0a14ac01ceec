package main

import (
	"encoding/binary"
	"time"
	"unsafe"
)

// A contestant is one way to decide whether a key may have another unit.
type contestant struct {
	name string
	// keepsKey means that the store keeps the string of a key. Such a contestant gets a fresh copy
	// of every key that may be new to it, as a server would make it; the others get one buffer that
	// is overwritten.
	keepsKey bool
	// keepsAll means that nothing is ever dropped, so that expiry costs nothing and memory is never
	// released.
	keepsAll bool
	open     func(setup) (store, error)
}

// A setup is what a case requires of a store: windows of Per in which each key has Limit units.
type setup struct {
	Keys  int // the final number
	Start int // the number at the start
	Limit int64
	Per   time.Duration
	File  string // the file of the counts; empty: in memory only
}

// A store decides. A worker's function belongs to one goroutine, and does not allocate by itself.
type store interface {
	worker() func(key []byte) (allowed bool)
	close() error
}

// plenty is a limit that no run reaches.
const plenty = 1<<31 - 1

const (
	floorName = "floor"
	weirName  = "weir"
	twoName   = "weir, two windows"
	shmName   = "weir, file on tmpfs"
	diskName  = "weir, file on disk"
)

// contestants returns them in the order of the tables.
func contestants() []contestant {
	return []contestant{
		{name: floorName, keepsAll: true, open: openFloor},
		{name: weirName, open: openWeir},
		{name: "sethvargo/go-limiter", keepsKey: true, open: openSethvargo},
		{name: "throttled", keepsKey: true, keepsAll: true, open: openThrottled},
		{name: "httprate", open: openHttprate},
		{name: "ulule/limiter", open: openUlule},
		{name: "tollbooth", keepsKey: true, open: openTollbooth},
		{name: "x/time/rate", keepsKey: true, keepsAll: true, open: openRate},
	}
}

// ourselves returns Weir's other configurations, which are compared with Weir.
func ourselves() []contestant {
	return []contestant{
		{name: twoName, open: openTwoWindows},
		{name: shmName, open: openWeir},
		{name: diskName, open: openWeir},
	}
}

func contestantNamed(name string) (contestant, bool) {
	for _, c := range append(contestants(), ourselves()...) {
		if c.name == name {
			return c, true
		}
	}
	return contestant{}, false
}

// A clock is the cheapest exact clock: the wall clock once, then the monotonic one. Every
// contestant that accepts a clock uses it.
type clock struct {
	start time.Time
	wall  int64
}

func newClock() clock {
	now := time.Now()
	return clock{now, now.UnixNano()}
}

// nanos returns the time in Unix nanoseconds.
func (c clock) nanos() int64 { return c.wall + int64(time.Since(c.start)) }

// time returns the time as a time.Time, whose wall clock advances with the monotonic one.
func (c clock) time() time.Time { return c.start.Add(time.Since(c.start)) }

// keyBytes is the length of every key: that of a limiter's name, a window, and an address with the
// hash of an agent.
const keyBytes = 40

// A key is the same 32 bytes and then its number. It is made in a buffer, and so is in the
// processor's cache, like a key that a server has just built.
type key [keyBytes]byte

func newKey(n uint64) *key {
	k := new(key)
	copy(k[:], "widget-init minute ip 192.0.2.1 ") // 32 bytes
	k.set(n)
	return k
}

func (k *key) set(n uint64) { binary.LittleEndian.PutUint64(k[keyBytes-8:], n) }

func (k key) number() uint64 { return binary.LittleEndian.Uint64(k[keyBytes-8:]) }

// asText returns b as a string, without a copy.
func asText(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// A random is a stream of numbers (xorshift64*), the same for every contestant with the same seed.
type random uint64

func newRandom(seed int) random { return random(uint64(seed)*0x9e3779b97f4a7c15 + 1) }

// below returns the next number, less than n.
func (r *random) below(n uint64) uint64 {
	x := uint64(*r)
	x ^= x >> 12
	x ^= x << 25
	x ^= x >> 27
	*r = random(x)
	return (x * 0x2545f4914f6cdd1d >> 32) * n >> 32
}
