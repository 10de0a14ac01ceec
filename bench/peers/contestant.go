package main

import (
	"encoding/binary"
	"time"
	"unsafe"
)

// A contestant is one way of deciding whether a key may have one unit more.
type contestant struct {
	name string
	// keepsKey says that the store holds on to the string it is asked about. Such a contestant gets a fresh copy of every
	// key that it may not know yet, as a server would make it; the others are asked with one buffer that is written anew.
	keepsKey bool
	// keepsAll says that nothing is ever forgotten, so that expiry costs nothing and memory is never given back.
	keepsAll bool
	open     func(setup) (store, error)
}

// A setup is what a case asks of a store: windows of Per in which each key has Limit units.
type setup struct {
	Keys  int // how many there will be
	Start int // how many there are at the start
	Limit int64
	Per   time.Duration
	File  string // where the counts are kept; empty: in memory only
}

// A store decides. A worker's function is one goroutine's own, and allocates nothing of its own making.
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

// contestants in the order in which they are shown.
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

// ourselves are Weir's other ways of being used; they are compared with Weir.
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

// A clock is the cheapest exact one: the wall clock once, the monotonic one from then on. Every contestant that lets one
// choose its clock has it.
type clock struct {
	start time.Time
	wall  int64
}

func newClock() clock {
	now := time.Now()
	return clock{now, now.UnixNano()}
}

// nanos is the time now, in Unix nanoseconds.
func (c clock) nanos() int64 { return c.wall + int64(time.Since(c.start)) }

// time is the time now, for those who want a time.Time. The reading of the wall clock moves along with the monotonic one.
func (c clock) time() time.Time { return c.start.Add(time.Since(c.start)) }

// keyBytes is the length of every key: that of a limiter's name, a window, and an address with the hash of an agent.
const keyBytes = 40

// A key is the same 32 bytes and then its number: the one that is asked about is made in a buffer, where it is in the
// processor's cache, as a key is that a server has just put together.
type key [keyBytes]byte

func newKey(n uint64) *key {
	k := new(key)
	copy(k[:], "widget-init minute ip 192.0.2.1 ") // 32 bytes
	k.set(n)
	return k
}

func (k *key) set(n uint64) { binary.LittleEndian.PutUint64(k[keyBytes-8:], n) }

func (k key) number() uint64 { return binary.LittleEndian.Uint64(k[keyBytes-8:]) }

// asText is b as a string, without a copy.
func asText(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// A random is a stream of numbers (xorshift64*), the same for every contestant that is given the same seed.
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
