package watch

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"math"
	"slices"

	"github.com/weirlimit/weir"
)

// A Query selects the contents of a Snapshot. The zero value selects nearly everything. If there
// are many limiters, a page should ask for the callers of one limiter only: for each limiter, the
// series takes about 5 µs and the callers take about 50 µs.
type Query struct {
	Seconds int // length of each series, at most 300; 0: 300; negative: none
	Top     int // callers in each list, at most 128; 0: 10; negative: none

	// After leaves out the refusals up to this number. It is Refusals.Next of an earlier Snapshot.
	After uint64

	Only []string // names of limiters, "" for the unlimited requests; nil: all
}

// A Snapshot is the statistics at one moment. All times are Unix seconds on the store's clock. The
// caller owns it.
type Snapshot struct {
	Now         int64     `json:"now"`   // the last second of each series, which is not over yet
	Since       int64     `json:"since"` // the start of the totals
	Seconds     int       `json:"seconds"`
	Limiters    []Limiter `json:"limiters"`
	Refusals    Refusals  `json:"refusals"`
	Candidate   Candidate `json:"candidate"`
	NotWatched  uint64    `json:"not_watched"`  // requests of limiters beyond the first 1000
	CallersKept int64     `json:"callers_kept"` // bytes
}

// A Limiter has the statistics of one limiter.
type Limiter struct {
	Name    string `json:"name"`     // empty: the requests that no limiter covers
	InForce bool   `json:"in_force"` // whether it is in the policy in force
	// Windows are those of the policy in force, in its syntax, and then its limit in flight.
	Windows  []string `json:"windows,omitempty"`
	Totals   Counts   `json:"totals"`
	Series   Series   `json:"series"`
	Spending []Caller `json:"spending,omitempty"` // the callers that spend most units
	Refused  []Caller `json:"refused,omitempty"`  // the callers with most refusals
	Shadow   *Shadow  `json:"shadow,omitempty"`   // nil if it was never in Shadow mode
	Settled  *Settled `json:"settled,omitempty"`  // nil if it settles nothing, and never has
}

// Counts are numbers of requests. Near and exempt requests also count as admitted. A request is
// near if it left less than 20 % of the limit.
type Counts struct {
	Admitted        uint64 `json:"admitted"`
	Refused         uint64 `json:"refused"`
	Near            uint64 `json:"near"`
	Unauthenticated uint64 `json:"unauthenticated"`
	Unavailable     uint64 `json:"unavailable"`
	Exempt          uint64 `json:"exempt"`
	Denied          uint64 `json:"denied"`
	// Misdirected are those of no limiter that were answered 421.
	Misdirected uint64 `json:"misdirected"`
}

// A Series is Counts for each second, the oldest first. A column of zeros is left out.
type Series struct {
	Admitted        []uint32 `json:"admitted,omitempty"`
	Refused         []uint32 `json:"refused,omitempty"`
	Near            []uint32 `json:"near,omitempty"`
	Unauthenticated []uint32 `json:"unauthenticated,omitempty"`
	Unavailable     []uint32 `json:"unavailable,omitempty"`
	Exempt          []uint32 `json:"exempt,omitempty"`
	Denied          []uint32 `json:"denied,omitempty"`
	Misdirected     []uint32 `json:"misdirected,omitempty"`
}

// A Shadow is what a limiter in Shadow mode would have done.
type Shadow struct {
	On          bool         `json:"on"` // whether it is in Shadow mode now
	WouldAdmit  uint64       `json:"would_admit"`
	WouldRefuse uint64       `json:"would_refuse"`
	Skipped     uint64       `json:"skipped"` // requests that it did not decide
	Series      ShadowSeries `json:"series"`
}

// A ShadowSeries is the counts of a Shadow for each second, the oldest first. A column of zeros is
// left out.
type ShadowSeries struct {
	WouldAdmit  []uint32 `json:"would_admit,omitempty"`
	WouldRefuse []uint32 `json:"would_refuse,omitempty"`
	Skipped     []uint32 `json:"skipped,omitempty"`
}

// A Caller is an entry of a list of top callers. Units, Reserved and Refused halve every five
// minutes. The
// figure that ranks the list is too high by at most Error. If requests were sampled, Error is three
// standard deviations wider.
type Caller struct {
	// Hash is 16 hex digits, constant while the process runs. Recorder.Caller takes it.
	Hash string `json:"hash"`
	// Kind is the key sources that count the caller, such as "session" or "ip+agent". It is empty
	// if they are not known yet.
	Kind string `json:"kind"`
	Name string `json:"name,omitempty"` // the id of its token
	// Units are what its requests have cost where that is known, and what was charged for the
	// others. Reserved is what was charged for all of them before they were served, since the
	// caller came onto the list.
	Units        float64   `json:"units"`
	Reserved     float64   `json:"reserved"`
	Refused      float64   `json:"refused"`
	Error        float64   `json:"error"`
	Since        int64     `json:"since"`         // when it came onto the list
	UnitsSince   int64     `json:"units_since"`   // units spent since then
	RefusedSince int64     `json:"refused_since"` // refusals since then
	Exempt       bool      `json:"exempt"`
	Actionable   bool      `json:"actionable"` // whether Recorder.Caller returns it
	Last         *Standing `json:"last,omitempty"`
}

// A Standing is the state of a window after a request.
type Standing struct {
	Window    string `json:"window"` // in the syntax of a policy
	Limit     int64  `json:"limit"`
	Count     int64  `json:"count"`
	Remaining int64  `json:"remaining"`
	Reset     int64  `json:"reset"`
	// Penalty means that the limiter's penalty refuses the caller, until Reset or before.
	Penalty bool `json:"penalty,omitempty"`
	// InFlight means that Count and Limit are of requests under way, which have no Reset.
	InFlight bool `json:"in_flight,omitempty"`
}

// Refusals are the refusals after Query.After, oldest first, at most 256.
type Refusals struct {
	List []Refusal `json:"list"`
	Next uint64    `json:"next"` // for the next Query.After

	// NotShown counts the refusals that were left out since the start, because their second already
	// had 1000.
	NotShown uint64 `json:"not_shown"`
}

// A Refusal is one 429.
type Refusal struct {
	Number  uint64   `json:"number"`
	At      int64    `json:"at"`
	Limiter string   `json:"limiter"`
	Kind    string   `json:"kind"`
	Name    string   `json:"name,omitempty"`
	Hash    string   `json:"hash"`
	Last    Standing `json:"standing"`
	Denial  string   `json:"denial,omitempty"`
}

// A Candidate is what would change under the candidate policy.
type Candidate struct {
	Since    int64        `json:"since"` // when this candidate was loaded
	Limiters []Difference `json:"limiters"`
}

// A Difference is what would change for one limiter. The numbers of callers count each caller once:
// exactly up to some thousands, then with a standard error of 0.8 %.
type Difference struct {
	Limiter              string `json:"limiter"`
	Same                 uint64 `json:"same"`
	NewlyRefused         uint64 `json:"newly_refused"`
	NewlyUnauthenticated uint64 `json:"newly_unauthenticated"` // of NewlyRefused, by a 401
	NewlyAdmitted        uint64 `json:"newly_admitted"`
	CallersNewlyRefused  uint64 `json:"callers_newly_refused"`
	CallersNewlyAdmitted uint64 `json:"callers_newly_admitted"`
}

// Snapshot returns the current statistics. The totals include every request whose Observe returned
// before the call.
func (r *Recorder) Snapshot(a Query) Snapshot {
	a.Seconds = bounded(a.Seconds, span, span)
	a.Top = bounded(a.Top, 10, capacity)
	r.collect(nil)
	now := r.now()
	r.sweep(now)
	r.mu.Lock()
	out := Snapshot{Now: now, Since: r.started, Seconds: a.Seconds, NotWatched: r.missed}
	shown := make([]*limiter, 0, len(r.limiters))
	out.Limiters = make([]Limiter, 0, len(r.limiters))
	for name, l := range r.limiters {
		if a.Only == nil || slices.Contains(a.Only, name) {
			shown = append(shown, l)
			out.Limiters = append(out.Limiters, Limiter{Name: name, InForce: l.inForce, Windows: l.windows, Settled: l.settlement(l.settles)})
			if l.shadow {
				out.Limiters[len(out.Limiters)-1].Shadow = &Shadow{On: true}
			}
		}
	}
	r.mu.Unlock()
	texts := make(windowTexts)
	for i, l := range shown {
		l.fill(&out.Limiters[i], now, a.Seconds)
		if a.Top == 0 {
			continue
		}
		spending, refused := l.callers.ranked(r, now, a.Top)
		out.Limiters[i].Spending = texts.spending(spending)
		out.Limiters[i].Refused = texts.refused(refused)
	}
	slices.SortFunc(out.Limiters, func(a, b Limiter) int { return cmp.Compare(a.Name, b.Name) })
	out.Refusals = r.refusals.snapshot(a.After, texts)
	out.Candidate = r.candidate.Load().snapshot()
	out.CallersKept = r.kept.Load()
	return out
}

// bounded returns n, or byDefault if n is 0, clamped to the range from 0 to limit.
func bounded(n, byDefault, limit int) int {
	if n == 0 {
		n = byDefault
	}
	return min(max(n, 0), limit)
}

// fill writes the totals and series of the limiter to out.
func (l *limiter) fill(out *Limiter, now int64, seconds int) {
	total := func(column int) uint64 { return l.totals[column].Load() }
	series := l.series(now-int64(seconds)+1, seconds)
	out.Totals = Counts{
		Admitted: total(admitted), Refused: total(refused), Near: total(near),
		Unauthenticated: total(unauthenticated), Unavailable: total(unavailable), Exempt: total(exempt), Denied: total(denied), Misdirected: total(misdirected),
	}
	out.Series = Series{
		Admitted: series[admitted], Refused: series[refused], Near: series[near],
		Unauthenticated: series[unauthenticated], Unavailable: series[unavailable], Exempt: series[exempt], Denied: series[denied], Misdirected: series[misdirected],
	}
	if out.Shadow == nil && total(wouldAdmit)+total(wouldRefuse)+total(skipped) == 0 {
		return
	}
	if out.Shadow == nil {
		out.Shadow = new(Shadow)
	}
	out.Shadow.WouldAdmit, out.Shadow.WouldRefuse, out.Shadow.Skipped = total(wouldAdmit), total(wouldRefuse), total(skipped)
	out.Shadow.Series = ShadowSeries{WouldAdmit: series[wouldAdmit], WouldRefuse: series[wouldRefuse], Skipped: series[skipped]}
}

// windowTexts caches the windows of a Snapshot in the syntax of a policy.
type windowTexts map[*weir.Window]string

func (t windowTexts) standing(s standing) Standing {
	if s.window == nil {
		return Standing{}
	}
	text, ok := t[s.window]
	if !ok {
		text = s.window.String()
		t[s.window] = text
	}
	return Standing{text, s.limit, s.count, s.remaining, s.reset, s.penalty, s.window.InFlight}
}

func (t windowTexts) spending(list []rankedEntry) (out []Caller) {
	for i := range list {
		c := t.caller(&list[i])
		c.Units, c.Refused = tenths(list[i].count), tenths(list[i].other)
		out = append(out, c)
	}
	return out
}

func (t windowTexts) refused(list []rankedEntry) (out []Caller) {
	for i := range list {
		c := t.caller(&list[i])
		c.Units, c.Refused = tenths(list[i].other), tenths(list[i].count)
		out = append(out, c)
	}
	return out
}

func (t windowTexts) caller(e *rankedEntry) Caller {
	c := Caller{
		Hash: hashText(e.hash), Kind: e.kind, Name: e.name, Error: math.Ceil(e.uncertain*10) / 10, Since: e.since,
		UnitsSince: e.spent, RefusedSince: e.refusals, Exempt: e.exempt, Actionable: e.saved != nil,
		Reserved: tenths(e.reserved),
	}
	if e.standing.window != nil {
		last := t.standing(e.standing)
		c.Last = &last
	}
	return c
}

func (f *refusals) snapshot(after uint64, texts windowTexts) Refusals {
	list, next := f.after(after)
	out := Refusals{List: make([]Refusal, 0, len(list)), Next: next, NotShown: f.notShown.Load()}
	for _, v := range list {
		out.List = append(out.List, Refusal{
			Number: v.number, At: v.second, Limiter: v.limiter, Kind: v.kind, Name: v.name, Hash: hashText(v.hash),
			Last: texts.standing(v.standing), Denial: v.denial,
		})
	}
	return out
}

func (n *candidate) snapshot() Candidate {
	out := Candidate{Since: n.since, Limiters: []Difference{}}
	n.mu.Lock()
	by := maps.Clone(n.by)
	n.mu.Unlock()
	for name, d := range by {
		out.Limiters = append(out.Limiters, Difference{
			Limiter: name, Same: d.counts[weir.Same].Load(), NewlyRefused: d.counts[weir.NewlyRefused].Load(), NewlyUnauthenticated: d.counts[rejectedAnew].Load(),
			NewlyAdmitted:       d.counts[weir.NewlyAdmitted].Load(),
			CallersNewlyRefused: d.refused.count(), CallersNewlyAdmitted: d.admitted.count(),
		})
	}
	slices.SortFunc(out.Limiters, func(a, b Difference) int { return cmp.Compare(a.Limiter, b.Limiter) })
	return out
}

// tenths rounds to one digit after the point.
func tenths(x float64) float64 { return math.Round(x*10) / 10 }

// hashText returns a hash as 16 hex digits.
func hashText(hash uint64) string {
	return hex.EncodeToString(binary.BigEndian.AppendUint64(nil, hash))
}

func hashValue(b [8]byte) uint64 { return binary.BigEndian.Uint64(b[:]) }
