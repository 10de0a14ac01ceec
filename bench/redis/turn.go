package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// A turn is one measurement: callers that take again as soon as they have an answer.
type turn struct {
	Callers int
	Length  time.Duration
	Keys    keys
	Refused bool // what every decision must be
	// read the clock only for every 16th decision, if a reading costs as much as a decision
	Sparse bool
}

// keys are the keys of the callers: random ones of a pool, or always new ones.
type keys struct {
	pool []string
	next *atomic.Int64 // if set, each key is new
}

func newPool(n int) keys {
	pool := make([]string, n)
	for i := range pool {
		pool[i] = name(i)
	}
	return keys{pool: pool}
}

// scope is the beginning of a key: a limiter, a window, and what it counts by.
const scope = "api hour ip "

// name returns the key of a number: the scope, and a text as long as an address.
func name(n int) string {
	return scope + "10." + strconv.Itoa(100+n/1_000_000) + "." + strconv.Itoa(1_000_000+n%1_000_000)
}

// A random is a stream of numbers (xorshift64*), the same for every contestant with the same seed.
type random uint64

func newRandom(seed int) random { return random(uint64(seed)*0x9e3779b97f4a7c15 + 1) }

func (r *random) below(n int) int {
	x := uint64(*r)
	x ^= x >> 12
	x ^= x << 25
	x ^= x >> 27
	*r = random(x)
	high, _ := bits.Mul64(x*0x2545f4914f6cdd1d, uint64(n))
	return int(high)
}

func (k keys) key(r *random) string {
	if k.next != nil {
		return name(int(k.next.Add(1)))
	}
	return k.pool[r.below(len(k.pool))]
}

// measure runs the callers for a warm-up, and then for the length of the turn.
func (t turn) measure(ctx context.Context, s *server, l limiter) (map[string]float64, error) {
	warm := t
	warm.Length = t.Length / 6
	if _, _, err := warm.load(ctx, l); err != nil {
		return nil, err
	}
	runtime.GC()
	before, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	own := ownCPU()
	took, spread, err := t.load(ctx, l)
	if err != nil {
		return nil, err
	}
	own = ownCPU() - own
	after, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	n := float64(spread.decisions.Load())
	return map[string]float64{
		"rate":   n / took.Seconds(),
		"p50":    spread.below(0.50).Seconds() * 1e6,
		"p99":    spread.below(0.99).Seconds() * 1e6,
		"server": float64(after.cpu-before.cpu) / 1e3 / n,
		"ran":    float64(after.ran-before.ran) / 1e3 / n,
		"client": float64(own) / 1e3 / n,
		"asked":  float64(after.asked-before.asked) / took.Seconds(),
	}, nil
}

// load takes from all callers for the length of the turn, and returns how long that took.
func (t turn) load(ctx context.Context, l limiter) (time.Duration, *latencies, error) {
	var (
		stop   atomic.Bool
		group  sync.WaitGroup
		once   sync.Once
		failed error
		spread = new(latencies)
	)
	start := time.Now()
	timer := time.AfterFunc(t.Length, func() { stop.Store(true) })
	defer timer.Stop()
	for i := range t.Callers {
		c := caller{turn: t, take: l.worker(), random: newRandom(i), stop: &stop, latencies: spread}
		group.Go(func() {
			if err := c.ask(ctx); err != nil {
				once.Do(func() { failed = err; stop.Store(true) })
			}
		})
	}
	group.Wait()
	if failed == nil {
		failed = ctx.Err()
	}
	return time.Since(start), spread, failed
}

// A caller is one goroutine of a turn.
type caller struct {
	turn
	take      func(context.Context, string) (bool, error)
	random    random
	stop      *atomic.Bool
	latencies *latencies
}

var errWrong = errors.New("a decision was wrong")

// ask takes until the turn ends. The end of one decision is the start of the next, so that each
// reads the clock once.
func (c *caller) ask(ctx context.Context) error {
	each := 1
	if c.Sparse {
		each = 16
	}
	for !c.stop.Load() {
		last := time.Now()
		for n := range 16 {
			allowed, err := c.take(ctx, c.Keys.key(&c.random))
			if err != nil {
				return err
			}
			if allowed == c.Refused {
				return fmt.Errorf("%w: allowed is %t", errWrong, allowed)
			}
			if (n+1)%each == 0 {
				now := time.Now()
				c.latencies.add(now.Sub(last)/time.Duration(each), int64(each))
				last = now
			}
		}
	}
	return nil
}

// latencies count decisions by their time, in steps of a thirty-second of an octave. The callers
// share them, because they run on one core.
type latencies struct {
	decisions atomic.Int64
	counts    [64 * steps]atomic.Int64
}

const steps = 32

func (l *latencies) add(took time.Duration, n int64) {
	l.decisions.Add(n)
	l.counts[place(took)].Add(n)
}

func place(took time.Duration) int {
	v := max(uint64(took), steps)
	octave := bits.Len64(v) - bits.Len64(steps)
	return octave*steps + int(v>>octave) - steps
}

// below returns the time that a part of the decisions did not exceed, rounded up to a step.
func (l *latencies) below(part float64) time.Duration {
	wanted := int64(math.Ceil(part * float64(l.decisions.Load())))
	var seen int64
	for i := range l.counts {
		if seen += l.counts[i].Load(); seen >= wanted {
			octave, step := i/steps, i%steps
			return time.Duration(uint64(steps+step+1) << octave)
		}
	}
	return 0
}
