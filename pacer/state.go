package pacer

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
)

func newLedger(o *Options, now func() int64) ledger {
	return ledger{shared: o.Shared, process: rand.Uint64(), now: now}
}

// A state is a budget as bytes: a version, the fields in order, the flights. Processes of one
// machine write and read it, perhaps of different builds: a state of another version is ignored.
const (
	stateVersion = 1
	stateFields  = 26
	flightSize   = 40
	maxFlights   = 32 // of as many processes; flights of further processes are not seen
)

// encode returns the state of a budget.
func encode(b *budget) []byte {
	out := make([]byte, 0, 1+8*stateFields+flightSize*len(b.flights))
	out = append(out, stateVersion)
	for _, v := range [stateFields]int64{
		int64(b.phase), b.limit, b.remaining, b.reset, b.ends, b.length, b.lengthWas, flag(b.upperBound), b.minRemaining, b.silentAnswers, b.blocked, b.seen, b.opened,
		b.clock.low, b.clock.high, b.clock.at, flag(b.clock.set),
		int64(b.started), int64(b.newest), int64(b.turned), b.lost, int64(b.lostAt), b.probes, b.probing, b.base, b.charged,
	} {
		out = binary.LittleEndian.AppendUint64(out, uint64(v))
	}
	out = binary.LittleEndian.AppendUint64(out, math.Float64bits(b.own))
	out = binary.LittleEndian.AppendUint64(out, math.Float64bits(b.foreign))
	for _, f := range b.recentFlights() {
		out = binary.LittleEndian.AppendUint64(out, f.process)
		for _, v := range [...]int64{f.units, f.waiting, f.taken, f.at} {
			out = binary.LittleEndian.AppendUint64(out, uint64(v))
		}
	}
	return out
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// recentFlights returns the flights that a state can hold: those with the latest updates.
func (b *budget) recentFlights() []flight {
	return b.flights[max(len(b.flights)-maxFlights, 0):]
}

// decode returns the budget of a state; ok is false for a state of another version or with
// impossible values.
func decode(state []byte) (b budget, ok bool) {
	const fixed = 1 + 8*(stateFields+2)
	if len(state) < fixed || state[0] != stateVersion || (len(state)-fixed)%flightSize != 0 || (len(state)-fixed)/flightSize > maxFlights {
		return budget{}, false
	}
	state = state[1:]
	next := func() uint64 {
		v := binary.LittleEndian.Uint64(state)
		state = state[8:]
		return v
	}
	number := func() int64 { return int64(next()) }
	b.phase = phase(next())
	b.limit, b.remaining, b.reset, b.ends, b.length, b.lengthWas = number(), number(), number(), number(), number(), number()
	b.upperBound = number() == 1
	b.minRemaining, b.silentAnswers, b.blocked, b.seen, b.opened = number(), number(), number(), number(), number()
	b.clock = clock{number(), number(), number(), number() == 1}
	b.started, b.newest, b.turned, b.lost, b.lostAt = next(), next(), next(), number(), next()
	b.probes, b.probing, b.base, b.charged = number(), number(), number(), number()
	b.own, b.foreign = math.Float64frombits(next()), math.Float64frombits(next())
	for len(state) > 0 {
		b.flights = append(b.flights, flight{next(), number(), number(), number(), number()})
	}
	return b, b.valid()
}

// valid reports whether all values are in a range that arithmetic can use.
func (b *budget) valid() bool {
	for _, units := range []int64{b.limit, b.remaining, b.minRemaining, b.silentAnswers, b.lost, b.probes, b.base, b.charged, b.inFlight()} {
		if units < 0 || units > endless/4 {
			return false
		}
	}
	for _, f := range b.flights {
		for _, n := range []int64{f.units, f.waiting, f.taken} {
			if n < 0 || n > endless/maxFlights {
				return false
			}
		}
	}
	for _, share := range []float64{b.own, b.foreign} {
		if !(share >= 0 && share < endless) {
			return false
		}
	}
	for _, at := range []int64{b.ends, b.blocked, b.seen, b.opened, b.probing, b.clock.low, b.clock.high, b.clock.at} {
		if at < -endless*2 || at > endless*2 {
			return false
		}
	}
	if limit := (longestWindow + 1) * second; b.ends-b.seen > limit || b.blocked-b.seen > limit {
		return false // no wait is longer than a window
	}
	return b.phase <= silent && b.length >= 0 && b.length <= longestWindow && b.lengthWas >= 0 && b.lengthWas <= longestWindow && b.reset >= 0
}

// plausible reports whether a state can be current: the clock was not set back since, and no window
// is too long.
func (b *budget) plausible(now int64) bool {
	for _, f := range b.flights {
		if f.at > now+second {
			return false
		}
	}
	latest := now + (longestWindow+2)*second
	return b.seen <= now+second && b.ends <= latest && b.blocked <= latest && b.probes < 1<<30
}
