package report

import (
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strings"

	"github.com/weirlimit/weir/internal/replay"
)

// A Condition is what a replay must not result in: [LIMITER.]METRIC OP NUMBER[%], such as
// "newly-refused > 0.3%".
//
// It is decided exactly, in fractions of whole numbers. If a number is only estimated, the
// condition holds as soon as it may hold.
type Condition struct {
	text    string
	limiter string // empty: all
	metric  *metric
	op      string
	bound   *big.Rat // as written; a percentage if percent
	percent bool
}

// A metric is a quantity that conditions compare.
type metric struct {
	name  string
	of    string // the whole of a percentage
	needs need
	whole bool // it has no value for one limiter
	value func(r *replay.Report, limiter string) []measured
}

// A need is an option that a metric requires of a run.
type need int

const (
	nothing need = iota
	against      // a second policy
	paced        // callers that wait
)

// A measured value is a number and the whole that it is a part of, each as bounds; they are equal
// for an exact number.
type measured struct {
	n, of span
	where string // which of several; may be empty
}

type span struct{ low, high *big.Rat }

func exactly(n int64) span { return span{big.NewRat(n, 1), big.NewRat(n, 1)} }

// callers returns a number of callers. The bounds of an estimate are its expected error.
func callers(c replay.Count) span {
	s := exactly(c.N)
	if c.Estimated {
		s.low = new(big.Rat).Mul(s.low, big.NewRat(100-estimateOff, 100))
		s.high = new(big.Rat).Mul(s.high, big.NewRat(100+estimateOff, 100))
		if c.Off > 0 {
			s = span{big.NewRat(c.N-c.Off, 1), big.NewRat(c.N+c.Off, 1)}
		}
	}
	return s
}

// estimateOff is the assumed error of an estimate in percent: more than replay.Count promises, so
// that a gate errs on the safe side.
const estimateOff = 3

var metrics = []metric{
	{"refused", "requests", nothing, false, func(r *replay.Report, limiter string) []measured {
		return perLimiter(r, limiter, func(o *replay.Outcome) int64 { return o.Refused }, func(l *replay.Limiter) int64 { return l.Refused })
	}},
	{"touched", "callers", nothing, false, touched},
	{"newly-refused", "requests", against, false, func(r *replay.Report, limiter string) []measured {
		return newly(r, limiter, r.Difference.NewlyRefused, func(d replay.Differences) int64 { return d.NewlyRefused })
	}},
	{"newly-admitted", "requests", against, false, func(r *replay.Report, limiter string) []measured {
		return newly(r, limiter, r.Difference.NewlyAdmitted, func(d replay.Differences) int64 { return d.NewlyAdmitted })
	}},
	{"newly-touched", "callers", against, true, func(r *replay.Report, _ string) []measured {
		return []measured{{n: callers(r.Difference.NewlyTouched), of: callers(r.Against.Callers)}}
	}},
	{"freed", "callers", against, true, func(r *replay.Report, _ string) []measured {
		return []measured{{n: callers(r.Difference.Freed), of: callers(r.Policy.Callers)}}
	}},
	{"delayed", "requests", paced, false, func(r *replay.Report, limiter string) []measured {
		return perLimiter(r, limiter, func(o *replay.Outcome) int64 { return o.Delay.Delayed }, func(l *replay.Limiter) int64 { return waits(l).Delayed })
	}},
	{"gave-up", "requests", paced, false, func(r *replay.Report, limiter string) []measured {
		return perLimiter(r, limiter, func(o *replay.Outcome) int64 { return o.Delay.GaveUp }, func(l *replay.Limiter) int64 { return waits(l).GaveUp })
	}},
	{"unlimited", "requests", nothing, true, func(r *replay.Report, _ string) []measured {
		return []measured{{n: exactly(last(r).Unlimited), of: exactly(last(r).Requests)}}
	}},
	{"malformed", "lines", nothing, true, func(r *replay.Report, _ string) []measured {
		return []measured{{n: exactly(r.Log.Malformed + r.Log.Timeless), of: exactly(r.Log.Lines)}}
	}},
}

// waits returns a limiter's delay, or the zero Delay if nothing waited.
func waits(l *replay.Limiter) replay.Delay {
	if l.Delay == nil {
		return replay.Delay{}
	}
	return *l.Delay
}

// last returns the outcome that conditions are about: the second policy's, if there is one.
func last(r *replay.Report) *replay.Outcome {
	if r.Against != nil {
		return r.Against
	}
	return &r.Policy
}

func perLimiter(r *replay.Report, limiter string, all func(*replay.Outcome) int64, one func(*replay.Limiter) int64) []measured {
	o := last(r)
	if limiter == "" {
		return []measured{{n: exactly(all(o)), of: exactly(o.Requests)}}
	}
	l := limiterOf(o, limiter)
	return []measured{{n: exactly(one(l)), of: exactly(l.Requests)}}
}

// limiterOf returns a limiter by its name. One that no request met may be missing; its figures are
// 0.
func limiterOf(o *replay.Outcome, name string) *replay.Limiter {
	if i := slices.IndexFunc(o.Limiters, func(l replay.Limiter) bool { return l.Name == name }); i >= 0 {
		return &o.Limiters[i]
	}
	return &replay.Limiter{Name: name}
}

// touched returns how many callers were refused something. Each window of a limiter has its own
// callers.
func touched(r *replay.Report, limiter string) (all []measured) {
	o := last(r)
	if limiter == "" {
		return []measured{{n: callers(o.Touched), of: callers(o.Callers)}}
	}
	for _, w := range limiterOf(o, limiter).Windows {
		all = append(all, measured{n: callers(w.Touched), of: callers(w.Callers), where: w.Window})
	}
	return all
}

func newly(r *replay.Report, limiter string, all int64, one func(replay.Differences) int64) []measured {
	if limiter == "" {
		return []measured{{n: exactly(all), of: exactly(r.Against.Requests)}}
	}
	n := int64(0)
	if i := slices.IndexFunc(r.Difference.Limiters, func(d replay.Differences) bool { return d.Name == limiter }); i >= 0 {
		n = one(r.Difference.Limiters[i])
	}
	return []measured{{n: exactly(n), of: exactly(limiterOf(r.Against, limiter).Requests)}}
}

var conditionForm = regexp.MustCompile(`^\s*(?:([^\s<>=]+)\.)?([a-z-]+)\s*(<=|>=|==|<|>)\s*([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*(%?)\s*$`)

// ParseCondition parses a condition.
func ParseCondition(text string) (*Condition, error) {
	m := conditionForm.FindStringSubmatch(text)
	if m == nil {
		return nil, errors.New("expected [LIMITER.]METRIC OP NUMBER[%], such as 'newly-refused > 0.3%'; OP is one of > >= < <= ==")
	}
	i := slices.IndexFunc(metrics, func(k metric) bool { return k.name == m[2] })
	if i < 0 {
		return nil, fmt.Errorf("there is no metric %q: expected %s", m[2], strings.Join(Metrics(), ", "))
	}
	c := &Condition{text: strings.TrimSpace(text), limiter: m[1], metric: &metrics[i], op: m[3], percent: m[5] != ""}
	var ok bool
	if c.bound, ok = new(big.Rat).SetString(m[4]); !ok {
		return nil, fmt.Errorf("%q is no number", m[4])
	}
	if c.limiter != "" && c.metric.whole {
		return nil, fmt.Errorf("%s is only known of all limiters together: leave %q out", c.metric.name, c.limiter+".")
	}
	if c.percent && c.bound.Cmp(big.NewRat(100, 1)) > 0 {
		return nil, fmt.Errorf("%s%% is more than all of the %s", m[4], c.metric.of)
	}
	return c, nil
}

// Metrics returns the names of all metrics.
func Metrics() []string {
	names := make([]string, len(metrics))
	for i, m := range metrics {
		names[i] = m.name
	}
	return names
}

// Limiter returns the limiter that c is about, or "" for all.
func (c *Condition) Limiter() string { return c.limiter }

// NeedsAgainst reports whether c needs a second policy.
func (c *Condition) NeedsAgainst() bool { return c.metric.needs == against }

// NeedsPaced reports whether c needs callers that wait.
func (c *Condition) NeedsPaced() bool { return c.metric.needs == paced }

func (c *Condition) String() string { return c.text }

// A Verdict is the result of a condition.
type Verdict struct {
	Condition string `json:"condition"`
	Holds     bool   `json:"holds"`    // whether the condition holds, or may hold
	Measured  string `json:"measured"` // the measured value, in words
}

// Judge decides whether c holds for r. r must have what c needs.
func (c *Condition) Judge(r *replay.Report) Verdict {
	v := Verdict{Condition: c.text}
	if why := c.unjudgeable(r); why != "" {
		v.Holds, v.Measured = true, why
		return v
	}
	all := c.metric.value(r, c.limiter)
	for i, m := range all {
		holds, words := c.holds(m)
		if i == 0 || holds && !v.Holds {
			v.Holds, v.Measured = holds, words
		}
	}
	if len(all) == 0 {
		v.Holds, v.Measured = true, "no window was asked, so there is nothing to judge"
	}
	if Crowded(r) {
		v.Holds = true
		v.Measured += ", but there was too little memory for exact figures, so the result may differ"
	}
	if c.isUnknown(r) {
		v.Holds = true
		v.Measured += ", but a window is unknown, since the log lacks the agent that it counts by: the result may differ"
	}
	if c.limiter != "" && limiterOf(last(r), c.limiter).Mode == "shadow" {
		v.Measured += ", if it were enforced"
	}
	return v
}

// Covers reports whether any limiter met a request. If not, no condition passes.
func Covers(o *replay.Outcome) bool {
	return slices.ContainsFunc(o.Limiters, func(l replay.Limiter) bool { return l.Requests > 0 })
}

// Crowded reports whether memory was too small, so that figures may be wrong. Then no condition
// passes either.
func Crowded(r *replay.Report) bool {
	for _, o := range []*replay.Outcome{&r.Policy, r.Against} {
		if o != nil && (o.Shared > 0 || o.Delay != nil && o.Delay.NoRoom > 0) {
			return true
		}
	}
	return false
}

// isUnknown reports whether an unknown window affects what c is about: then c does not pass.
func (c *Condition) isUnknown(r *replay.Report) bool {
	if c.metric.of == "lines" || c.metric.name == "unlimited" {
		return false
	}
	if Unknown(last(r), c.limiter) {
		return true
	}
	// under the other policy the limiter's requests may have had another limiter
	return c.metric.needs == against && Unknown(&r.Policy, "")
}

// unjudgeable returns why nothing that c is about can happen, whatever the log, or "".
func (c *Condition) unjudgeable(r *replay.Report) string {
	o := last(r)
	switch {
	case o.Requests > 0 && !Covers(o):
		return "no limiter covers any request, so there is nothing to judge"
	case c.metric.of == "lines" || c.metric.name == "unlimited":
		return ""
	case c.limiter == "" && o.Requests > 0 && o.Unlimited == o.Requests:
		why := "no limiter that is enforced covers any request, so there is nothing to judge"
		if o.Shadow.Requests > 0 {
			why += "; for one in shadow, use LIMITER.refused"
		}
		return why
	case c.limiter != "" && limiterOf(o, c.limiter).Mode == "shadow" && c.metric.needs != nothing:
		return "it is in shadow and refuses nothing, so there is nothing to judge; refused and touched count what it would refuse"
	}
	return ""
}

// holds reports whether c holds for a measured value, and describes the value.
func (c *Condition) holds(m measured) (bool, string) {
	words := c.words(m)
	value, hundred := m.n, big.NewRat(100, 1)
	if c.percent {
		if m.of.low.Sign() == 0 {
			return true, words + ": there is no share of zero, so it cannot be judged"
		}
		value.low = new(big.Rat).Quo(new(big.Rat).Mul(m.n.low, hundred), m.of.high)
		value.high = new(big.Rat).Quo(new(big.Rat).Mul(m.n.high, hundred), m.of.low)
		// apart from estimation errors, a part is at most the whole
		if about(m.n)+about(m.of) != "" {
			value.low, value.high = atMost(value.low, hundred), atMost(value.high, hundred)
		}
	}
	low, high := value.low.Cmp(c.bound), value.high.Cmp(c.bound)
	switch c.op {
	case ">":
		return high > 0, words
	case ">=":
		return high >= 0, words
	case "<":
		return low < 0, words
	case "<=":
		return low <= 0, words
	}
	return low <= 0 && high >= 0, words
}

func atMost(a, limit *big.Rat) *big.Rat {
	if a.Cmp(limit) > 0 {
		return limit
	}
	return a
}

// words describes a measured value: 42 of 10,000 requests (0.42%).
func (c *Condition) words(m measured) string {
	n, of := middle(m.n), middle(m.of)
	words := fmt.Sprintf("%s%s of %s%s", about(m.n), thousands(n), about(m.of), many(of, strings.TrimSuffix(c.metric.of, "s")))
	if c.percent && of > 0 {
		about := about(m.n)
		if about != "" {
			n = min(n, of)
		}
		words += fmt.Sprintf(" (%s%s)", about, percent(n, of))
	}
	if m.where != "" {
		words += " of " + Shown(m.where, 60)
	}
	if m.n.low.Cmp(m.n.high) != 0 || m.of.low.Cmp(m.of.high) != 0 {
		words += fmt.Sprintf(", estimated, and taken to be off by %d %%", estimateOff)
	}
	return words
}

// about returns the prefix of an estimated number.
func about(s span) string {
	if s.low.Cmp(s.high) == 0 {
		return ""
	}
	return "~"
}

// percent formats n of a whole with enough digits to distinguish it from its neighbours.
func percent(n, of int64) string {
	text := new(big.Rat).SetFrac64(100*n, of).FloatString(6)
	return strings.TrimRight(strings.TrimRight(text, "0"), ".") + "%"
}

// middle returns the number in the middle of the bounds.
func middle(s span) int64 {
	m := new(big.Rat).Mul(new(big.Rat).Add(s.low, s.high), big.NewRat(1, 2))
	return new(big.Int).Quo(m.Num(), m.Denom()).Int64()
}
