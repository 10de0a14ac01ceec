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

// An Ask says how much a Snapshot is to tell; the zero value asks for nearly all. Where there are many limiters a page should ask
// for no callers but those of the limiter that it shows: a Snapshot takes some 5 µs for the seconds of a limiter, 50 for its callers.
type Ask struct {
	Seconds int      // of each series, at most 300; 0: 300; negative: none
	Top     int      // callers of each list, at most 128; 0: 10; negative: none
	After   uint64   // the number of the last refusal that is known already: Refusals.Next of the Snapshot before
	Only    []string // names of limiters, "" for the unlimited requests; nil: all
}

// A Snapshot is what is going on. All times are Unix seconds by the store's clock. It is the reader's own.
type Snapshot struct {
	Now         int64     `json:"now"`   // the last second of each series; it is not over yet
	Since       int64     `json:"since"` // when the totals began
	Seconds     int       `json:"seconds"`
	Limiters    []Limiter `json:"limiters"`
	Refusals    Refusals  `json:"refusals"`
	Candidate   Candidate `json:"candidate"`
	NotWatched  uint64    `json:"not_watched"`  // requests of limiters beyond the first 1000
	CallersKept int64     `json:"callers_kept"` // bytes
}

// A Limiter is what is going on at one limiter.
type Limiter struct {
	Name     string   `json:"name"`     // empty: the requests that no limiter covers
	InForce  bool     `json:"in_force"` // whether the policy in force has it
	Totals   Counts   `json:"totals"`
	Series   Series   `json:"series"`
	Spending []Caller `json:"spending,omitempty"` // who spends most, by units
	Refused  []Caller `json:"refused,omitempty"`  // who is refused most, by refusals
	Shadow   *Shadow  `json:"shadow,omitempty"`   // nil where it is not and was not in Shadow mode
}

// Counts are numbers of requests. Near and exempt ones are among the admitted: near are those that left less than 20 % of the
// limit.
type Counts struct {
	Admitted        uint64 `json:"admitted"`
	Refused         uint64 `json:"refused"`
	Near            uint64 `json:"near"`
	Unauthenticated uint64 `json:"unauthenticated"`
	Unavailable     uint64 `json:"unavailable"`
	Exempt          uint64 `json:"exempt"`
}

// A Series is Counts for each second, the oldest first; a column without any is left out.
type Series struct {
	Admitted        []uint32 `json:"admitted,omitempty"`
	Refused         []uint32 `json:"refused,omitempty"`
	Near            []uint32 `json:"near,omitempty"`
	Unauthenticated []uint32 `json:"unauthenticated,omitempty"`
	Unavailable     []uint32 `json:"unavailable,omitempty"`
	Exempt          []uint32 `json:"exempt,omitempty"`
}

// A Shadow is what a limiter in Shadow mode would have done.
type Shadow struct {
	On          bool         `json:"on"` // whether it is in Shadow mode now
	WouldAdmit  uint64       `json:"would_admit"`
	WouldRefuse uint64       `json:"would_refuse"`
	Skipped     uint64       `json:"skipped"` // requests that it was not asked about
	Series      ShadowSeries `json:"series"`
}

// A ShadowSeries is as Series.
type ShadowSeries struct {
	WouldAdmit  []uint32 `json:"would_admit,omitempty"`
	WouldRefuse []uint32 `json:"would_refuse,omitempty"`
	Skipped     []uint32 `json:"skipped,omitempty"`
}

// A Caller is one of those who spend most, or are refused most. Units and Refused halve every five minutes; of what its list is
// ranked by it has at least the figure less Error. (Where requests were sampled Error is three standard deviations wider.)
type Caller struct {
	Hash         string    `json:"hash"`           // 16 hex digits, the same for as long as this process runs; for Recorder.Caller
	Kind         string    `json:"kind"`           // the key sources that count it, such as "session" or "ip+agent"; empty: not known yet
	Name         string    `json:"name,omitempty"` // the id of its token
	Units        float64   `json:"units"`
	Refused      float64   `json:"refused"`
	Error        float64   `json:"error"`
	Since        int64     `json:"since"`         // when it came onto the list
	UnitsSince   int64     `json:"units_since"`   // spent since then
	RefusedSince int64     `json:"refused_since"` // refusals since then
	Exempt       bool      `json:"exempt"`
	Actionable   bool      `json:"actionable"` // Recorder.Caller knows it
	Last         *Standing `json:"last,omitempty"`
}

// A Standing is where a window stood.
type Standing struct {
	Window    string `json:"window"` // as a policy spells it
	Limit     int64  `json:"limit"`
	Count     int64  `json:"count"`
	Remaining int64  `json:"remaining"`
	Reset     int64  `json:"reset"`
}

// Refusals are those after Ask.After, oldest first, 256 at most.
type Refusals struct {
	List     []Refusal `json:"list"`
	Next     uint64    `json:"next"`      // for the next Ask.After
	NotShown uint64    `json:"not_shown"` // since the beginning: refusals of seconds that had more than 1000
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
	Since    int64        `json:"since"` // when the candidate became what it is
	Limiters []Difference `json:"limiters"`
}

// A Difference is what would change for one limiter. Callers are distinct ones: exact up to some thousands, then within 2 %.
type Difference struct {
	Limiter              string `json:"limiter"`
	Same                 uint64 `json:"same"`
	NewlyRefused         uint64 `json:"newly_refused"`
	NewlyAdmitted        uint64 `json:"newly_admitted"`
	CallersNewlyRefused  uint64 `json:"callers_newly_refused"`
	CallersNewlyAdmitted uint64 `json:"callers_newly_admitted"`
}

// Snapshot tells what is going on. Every request whose Observe has returned is in its totals.
func (r *Recorder) Snapshot(a Ask) Snapshot {
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
			out.Limiters = append(out.Limiters, Limiter{Name: name, InForce: l.inForce})
			if l.shadow {
				out.Limiters[len(out.Limiters)-1].Shadow = &Shadow{On: true}
			}
		}
	}
	r.mu.Unlock()
	texts := make(spelled)
	for i, l := range shown {
		l.tell(&out.Limiters[i], now, a.Seconds)
		if a.Top == 0 {
			continue
		}
		spending, refused := l.callers.ranked(r, now, a.Top)
		out.Limiters[i].Spending = texts.spending(spending)
		out.Limiters[i].Refused = texts.refused(refused)
	}
	slices.SortFunc(out.Limiters, func(a, b Limiter) int { return cmp.Compare(a.Name, b.Name) })
	out.Refusals = r.refusals.tell(a.After, texts)
	out.Candidate = r.candidate.Load().tell()
	out.CallersKept = r.kept.Load()
	return out
}

// bounded returns n, or what 0 stands for, from 0 to most.
func bounded(n, zero, most int) int {
	if n == 0 {
		n = zero
	}
	return min(max(n, 0), most)
}

// tell fills in what was counted.
func (l *limiter) tell(out *Limiter, now int64, seconds int) {
	total := func(column int) uint64 { return l.totals[column].Load() }
	series := l.series(now-int64(seconds)+1, seconds)
	out.Totals = Counts{
		Admitted: total(admitted), Refused: total(refused), Near: total(near),
		Unauthenticated: total(unauthenticated), Unavailable: total(unavailable), Exempt: total(exempt),
	}
	out.Series = Series{
		Admitted: series[admitted], Refused: series[refused], Near: series[near],
		Unauthenticated: series[unauthenticated], Unavailable: series[unavailable], Exempt: series[exempt],
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

// spelled are windows as a policy spells them, each written once a Snapshot.
type spelled map[*weir.Window]string

func (t spelled) standing(s standing) Standing {
	if s.window == nil {
		return Standing{}
	}
	text, ok := t[s.window]
	if !ok {
		text = s.window.String()
		t[s.window] = text
	}
	return Standing{text, s.limit, s.count, s.remaining, s.reset}
}

func (t spelled) spending(list []rankedEntry) (out []Caller) {
	for i := range list {
		c := t.caller(&list[i])
		c.Units, c.Refused = tenths(list[i].count), tenths(list[i].other)
		out = append(out, c)
	}
	return out
}

func (t spelled) refused(list []rankedEntry) (out []Caller) {
	for i := range list {
		c := t.caller(&list[i])
		c.Units, c.Refused = tenths(list[i].other), tenths(list[i].count)
		out = append(out, c)
	}
	return out
}

func (t spelled) caller(e *rankedEntry) Caller {
	c := Caller{
		Hash: hashText(e.hash), Kind: e.kind, Name: e.name, Error: math.Ceil(e.uncertain*10) / 10, Since: e.since,
		UnitsSince: e.spent, RefusedSince: e.refusals, Exempt: e.exempt, Actionable: e.known != nil,
	}
	if e.standing.window != nil {
		last := t.standing(e.standing)
		c.Last = &last
	}
	return c
}

func (f *refusals) tell(after uint64, texts spelled) Refusals {
	list, next := f.after(after)
	out := Refusals{List: make([]Refusal, 0, len(list)), Next: next, NotShown: f.hidden.Load()}
	for _, v := range list {
		out.List = append(out.List, Refusal{
			Number: v.number, At: v.second, Limiter: v.limiter, Kind: v.kind, Name: v.name, Hash: hashText(v.hash),
			Last: texts.standing(v.standing), Denial: v.denial,
		})
	}
	return out
}

func (n *candidate) tell() Candidate {
	out := Candidate{Since: n.since, Limiters: []Difference{}}
	n.mu.Lock()
	by := maps.Clone(n.by)
	n.mu.Unlock()
	for name, d := range by {
		out.Limiters = append(out.Limiters, Difference{
			Limiter: name, Same: d.counts[same].Load(), NewlyRefused: d.counts[newlyRefused].Load(), NewlyAdmitted: d.counts[newlyAdmitted].Load(),
			CallersNewlyRefused: d.refused.count(), CallersNewlyAdmitted: d.admitted.count(),
		})
	}
	slices.SortFunc(out.Limiters, func(a, b Difference) int { return cmp.Compare(a.Limiter, b.Limiter) })
	return out
}

// tenths rounds to one digit after the point.
func tenths(x float64) float64 { return math.Round(x*10) / 10 }

// hashText is a hash as it is shown.
func hashText(hash uint64) string {
	return hex.EncodeToString(binary.BigEndian.AppendUint64(nil, hash))
}

func hashValue(b [8]byte) uint64 { return binary.BigEndian.Uint64(b[:]) }
