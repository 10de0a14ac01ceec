package lease

import (
	"math"
	"time"
)

// A Trend is how a node's requests of one key have gone lately: how many units they spend, and
// which share of what all nodes spend. The zero value knows nothing. It is not safe for concurrent
// use.
//
// The rule is that of docs/adr/0040-leases.md. A node alone on a key takes three fifths of what is
// left each time, as far as it spends that in half of the window, or in 30 seconds. A node among
// others takes its share of three fifths, as far as it spends that in a sixtieth of the window, or
// in 10 seconds, but at least in one.
type Trend struct {
	at     time.Duration // of the last answer
	recent float64       // units of late, each worth less with time: rate times memory
	// units that this node has spent, and that all have, each worth less with each answer
	own, all float64
	count    int64 // the store's count at the last answer
	reset    int64 // of the window of that answer
	others   int64 // units of that window that others have spent or leased, as far as is known
	// of a refusal since then
	full, fullReset int64
	// units of requests that the leased ones could not serve, each worth less with each answer
	other float64
	// how long such requests were at the store, in seconds, each worth less with time
	blocked       float64
	blockedAt     time.Duration
	unsuitedUntil time.Duration
}

const (
	// memory is how long the rate remembers, as a part of the window, and at most.
	memory     = 6
	mostMemory = time.Minute
	// mostAlone and mostAhead bound what a node asks for ahead: it stays spent if the connection to
	// the store is replaced, or if the node is killed.
	mostAlone = 30 * time.Second
	mostAhead = 10 * time.Second
	// fading is what units are worth after the next answer.
	fading = 0.9
	// alone is the share from which a node counts as the only one on a key.
	alone = 0.7
	// part is how much of what is left all nodes together ask for, in thousandths.
	part = 600
	// few is the part of what this node spends that leased units may fail to serve, and mostBlocked
	// the part of the time for which such requests may be at the store: one waits for another. If
	// they were there for longer, nothing is leased for a while, or it would be again and again.
	few         = 0.05
	mostBlocked = 0.2
	unsuited    = 10 * time.Second
	// Least is the least number of units worth leasing.
	Least = 2
)

// Note records an answer of the store at now: the units that this node has spent since the last
// answer, with that of the answer, and the store's count before the answer and after it.
func (t *Trend) Note(now, per time.Duration, own, before, after, reset int64) {
	if reset != t.reset {
		t.count, t.others = 0, 0
	}
	t.others += max(0, before-t.count)
	t.own = t.own*fading + float64(own)
	t.all = t.all*fading + float64(own+max(0, before-t.count))
	tau := remembers(per)
	passed := max(0, now-t.at).Seconds()
	fades := math.Exp(-passed / tau)
	spread := 1.0 // of units that were spent one by one since the last answer
	if passed > 0 {
		spread = tau / passed * (1 - fades)
	}
	t.recent = t.recent*fades + float64(own-1)*spread + 1
	t.other *= fading
	t.at, t.count, t.reset, t.fullReset = now, after, reset, 0
}

// Refused records the store's count in the window with a reset, when it refused a request. Until it
// admits one, no more than the limit less that count is left to wish for.
func (t *Trend) Refused(count, reset int64) { t.full, t.fullReset = count, reset }

// Other records units of a request that leased ones could not serve, and that was at the store for
// some time until now: one under another limit, one that needs the store's count or only looks, or
// one of whose other windows nothing is leased. Such requests would wait for each other while units
// are leased.
func (t *Trend) Other(units int64, now, lasted time.Duration) {
	t.other += float64(units)
	t.blocked = t.blockedBy(now) + lasted.Seconds()
	if t.blockedAt = now; t.blocked > mostBlocked {
		t.Slow(now)
	}
}

// Slow records that a request waited at now for so long, because units are leased, that it nearly
// missed its deadline.
func (t *Trend) Slow(now time.Duration) { t.unsuitedUntil = now + unsuited }

func (t *Trend) blockedBy(now time.Duration) float64 {
	return t.blocked * math.Exp(-max(0, now-t.blockedAt).Seconds())
}

// Suits reports whether units of the window are worth leasing at now: the requests that they could
// not serve are few, and seldom at the store, and none was slow for a while.
func (t *Trend) Suits(now time.Duration) bool {
	return t.other <= few*t.own && now >= t.unsuitedUntil
}

func remembers(per time.Duration) (seconds float64) {
	return min(per/memory, mostMemory).Seconds()
}

// A Wish is how many units a node asks for beside the cost of a request.
type Wish struct {
	Units int64 // at most
	Part  int64 // of what is left, at most, in thousandths
	Least int64 // fewer are not granted
}

// Wish returns how many units of a window of length per under a limit the node wants at now, by the
// store's clock second; the zero Wish if it should ask for each request. Requests of about waiting
// units wait: if fewer would be granted, most of them would wait for one answer after the other.
func (t *Trend) Wish(now, per time.Duration, limit, second, waiting int64) Wish {
	rate := t.Rate(now, per)
	ahead := max(min(per/60, mostAhead), time.Second)
	share := t.share()
	if share >= alone {
		ahead = max(min(per/2, mostAlone), time.Second)
	}
	rest := limit
	if t.reset > second {
		rest -= t.count
	}
	if t.fullReset > second {
		rest = min(rest, limit-t.full)
	}
	w := Wish{Units: int64(min(rate*ahead.Seconds(), float64(limit))), Part: int64(share * part), Least: Least}
	if min(w.Units, rest*w.Part/1000) < max(Least, 2*waiting) {
		return Wish{}
	}
	return w
}

// Rate returns how many units of a window of length per this node has spent lately, in a second.
func (t *Trend) Rate(now, per time.Duration) float64 {
	tau := remembers(per)
	return t.recent * math.Exp(-max(0, now-t.at).Seconds()/tau) / tau
}

// share is this node's share of what all spend. One unit of others is assumed, so that a node is
// not alone on a key after its first request.
func (t *Trend) share() float64 { return t.own / (t.all + 1) }

// GaveBack records that units of the window with a reset went back: others may have spent as many
// since, without a higher count.
func (t *Trend) GaveBack(reset int64) {
	if t.reset == reset {
		t.others = max(1, t.others)
	}
}

// Alone reports whether no other node can have spent or leased something of the window with a
// reset, of which the store has told count now.
func (t *Trend) Alone(reset, count int64) bool {
	return t.own > 0 && t.others == 0 && t.reset == reset && count <= t.count
}

// Patience returns how long units may be idle before they should go back, of a window of length
// per: a second, and if the node seldom has requests of the key, longer: up to a sixtieth of the
// window, or a sixth if the node is alone on the key, and at most 30 seconds.
func (t *Trend) Patience(per time.Duration) time.Duration {
	rate := t.recent / remembers(per)
	if rate <= 0 {
		return time.Second
	}
	most := per / 60
	if t.share() >= alone {
		most = per / 6
	}
	most = min(most, mostAlone)
	return max(time.Second, min(most, time.Duration(3/rate*float64(time.Second))))
}
