package watch

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// TestASketchKeepsItsPromises compares a sketch with exact counts. No count is less than the true
// weight, or more than the true weight plus its error. Each caller with more than 1/capacity of the
// total weight has an entry, for any traffic and any movement of the clock.
func TestASketchKeepsItsPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		callers := rapid.IntRange(1, 1000).Draw(t, "callers")
		skew := rapid.Float64Range(0.1, 4).Draw(t, "skew")
		pause := rapid.SampledFrom([]int64{1, 1, 10, 1000, 100_000}).Draw(t, "longest pause")
		var s sketch
		r := new(Recorder)
		truth, total := make(map[uint64]float64), 0.0
		now := int64(1_800_000_000)
		for range 3000 {
			if random.IntN(20) == 0 {
				step := 1 + random.Int64N(pause)
				now += step
				for hash := range truth {
					truth[hash] *= math.Exp2(-float64(step) / halfLife)
				}
				total *= math.Exp2(-float64(step) / halfLife)
			}
			hash := uint64(math.Pow(random.Float64(), skew) * float64(callers))
			amount := 1 + random.Int64N(5)
			s.at(now)
			s.add(hash, amount, 1)
			truth[hash] += float64(amount)
			total += float64(amount)
			if random.IntN(200) == 0 {
				s.prune(r) // which drops entries below minWeight
			}
		}
		check(t, &s, truth, total)
	})
}

func check(t *rapid.T, s *sketch, truth map[uint64]float64, total float64) {
	const rounding = 1e-6
	if got := s.total / s.scale; math.Abs(got-total) > rounding*total {
		t.Fatalf("the whole weight is %v, not %v", got, total)
	}
	if len(s.entries) > capacity {
		t.Fatalf("%d entries, more than %d", len(s.entries), capacity)
	}
	there := make(map[uint64]bool)
	for i, hash := range s.hashes {
		if there[hash] {
			t.Fatalf("caller %d has two entries", hash)
		}
		there[hash] = true
		count, wrong := s.counts[i]/s.scale, s.entries[i].error/s.scale
		if count < truth[hash]-rounding || count-wrong > truth[hash]+rounding {
			t.Fatalf("caller %d has %v: the entry says %v, of which %v may be others'", hash, truth[hash], count, wrong)
		}
	}
	for hash, weight := range truth {
		if weight > total/capacity+minWeight && !there[hash] {
			t.Fatalf("caller %d has %v of %v and no entry", hash, weight, total)
		}
	}
}

func TestWeightsHalveInFiveMinutes(t *testing.T) {
	var s sketch
	s.at(1000)
	s.add(1, 64, 1)
	for _, c := range []struct {
		second int64
		want   float64
	}{
		{1000, 64},
		{1300, 32},
		{1290, 32},               // a machine that is a little behind changes nothing
		{1900, 8},                //
		{1900 - 86400, 8},        // a clock that was set back stops the decay,
		{1900 - 86400 + 300, 4},  // which goes on from there
		{4_000_000_000, 0},       // and one that is set to come leaves nothing
		{4_000_000_000 + 300, 0}, //
	} {
		s.at(c.second)
		if got := s.counts[0] / s.scale; math.Abs(got-c.want) > 1e-9 {
			t.Errorf("at %d the weight is %v, not %v", c.second, got, c.want)
		}
	}
	s.add(1, 8, 1)
	if got := s.counts[0] / s.scale; got != 8 {
		t.Errorf("after the clock went far ahead 8 units weigh %v", got)
	}
}

func TestSampledCountsAreRightOnAverage(t *testing.T) {
	s := &shard{sample: rand.NewChaCha8([32]byte{1})}
	const requests = 3_000_000
	var sum, taken int64
	for range requests {
		if w := s.weight(1000); w > 0 {
			sum += w
			taken++
		}
	}
	if math.Abs(float64(sum)-requests) > 0.05*requests {
		t.Errorf("the sample stands for %d requests, not %d", sum, requests)
	}
	if taken < sampleAbove || taken > 10*sampleAbove {
		t.Errorf("%d of %d requests of one second were looked at", taken, requests)
	}
	for range sampleAbove {
		if w := s.weight(1001); w != 1 {
			t.Fatalf("at the beginning of a second a request stands for %d", w)
		}
	}
}
