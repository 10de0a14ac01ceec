package telemetry

import (
	"math"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
)

// A series of decisions has one slot for each outcome, followed by these slots.
const (
	slotNear    = int(answer.Unavailable) + 1 + iota // admitted, with little left
	slotExempt                                       // from an exempt caller
	slotPenalty                                      // refused by a penalty
)

// slotMisdirected is in the series without a limiter, which has none of the slots above.
const slotMisdirected = slotNear

// The slots of the other families, as label values.
var (
	fallbackHow      = [...]string{"counted_locally", "allowed_uncounted", "store_unavailable"}
	shadowOutcome    = [...]string{"would_admit", "would_refuse", "skipped"}
	candidateOutcome = [...]string{weir.Same: "same", weir.NewlyRefused: "newly_refused", weir.NewlyAdmitted: "newly_admitted"}
)

// slotRejected is the slot after candidateOutcome: of the newly refused, those that lack a
// credential.
const slotRejected = len(candidateOutcome)

// Observe counts one decision: it is for answer.Options.Observe. It takes about 40 ns and does
// not allocate if it has seen the window before. It retains only pointers into the policy.
func (m *Metrics) Observe(o answer.Observation) {
	lane := m.lanes.get()
	if o.Outcome == answer.Denied {
		m.latency.observe(lane.i, o.Latency)
		limiterSeries(&m.denials, o.Decision.DeniedBy).cells[lane.i].n[0].Add(1)
		m.lanes.put(lane)
		return
	}
	s := m.decisions.find(o.Window)
	if s == nil {
		s = m.decisions.register(o.Window, windowNames(o.Limiter, o.Window))
	}
	if d := o.Decision; d != nil && d.Allowed && d.Cost > 0 {
		m.reserve(lane.i, d)
	}
	counts := &s.cells[lane.i].n
	switch {
	case o.Outcome == answer.Misdirected:
		counts[slotMisdirected].Add(1)
	case int(o.Outcome) < slotNear:
		counts[o.Outcome].Add(1)
	}
	if d := o.Decision; d != nil {
		m.latency.observe(lane.i, o.Latency)
		if b := d.Standings(); len(b) > 0 {
			if o.Outcome == answer.Admitted && b[0].Near() {
				counts[slotNear].Add(1)
			}
			if o.Outcome == answer.Refused && hasPenalty(b) {
				counts[slotPenalty].Add(1)
			}
			if d.Outcome != weir.Counted {
				m.fallback(lane.i, b[0].Limiter, d.Outcome)
			}
		}
		if d.Exempt {
			counts[slotExempt].Add(1)
		}
	}
	m.lanes.put(lane)
}

// hasPenalty reports whether the caller is under a penalty. Another window may bind, because it
// frees later.
func hasPenalty(standings []weir.Standing) bool {
	for i := range standings {
		if standings[i].Penalty {
			return true
		}
	}
	return false
}

func (m *Metrics) fallback(lane int, l *weir.Limiter, outcome weir.Outcome) {
	if i := int(outcome) - int(weir.CountedLocally); i >= 0 && i < len(fallbackHow) {
		limiterSeries(&m.fallbacks, l).cells[lane].n[i].Add(1)
	}
}

// Shadow counts what a limiter in Shadow mode would have decided: it is for weir.Options.OnShadow.
func (m *Metrics) Shadow(s weir.Shadowed) {
	i := 0
	switch {
	case s.Skipped:
		i = 2
	case s.Rejects || s.Decision != nil && !s.Decision.Allowed:
		i = 1
	}
	lane := m.lanes.get()
	limiterSeries(&m.shadows, s.Limiter).cells[lane.i].n[i].Add(1)
	m.lanes.put(lane)
}

// Candidate counts how the candidate policy differs from the one in force: it is for
// weir.Options.OnCandidate. It counts under the limiter in force, or under the candidate's limiter
// if only that one covers the request.
func (m *Metrics) Candidate(c weir.Compared) {
	var l *weir.Limiter
	for _, d := range [...]*weir.Decision{c.Live, c.Candidate} {
		if l == nil {
			l = d.Limiter()
		}
	}
	lane := m.lanes.get()
	effect, counts := c.Effect(), &limiterSeries(&m.candidates, l).cells[lane.i].n
	counts[effect].Add(1)
	if effect == weir.NewlyRefused && c.CandidateRejects {
		counts[slotRejected].Add(1)
	}
	m.lanes.put(lane)
}

// limiterSeries returns the series of l, which may be nil.
func limiterSeries(f *family[string], l *weir.Limiter) *series {
	name := ""
	if l != nil {
		name = l.Name
	}
	if s := f.find(name); s != nil {
		return s
	}
	name = strings.Clone(name) // it may be a part of a policy's text
	return f.register(name, names{limiter: name})
}

// windowNames returns the labels of a window, or empty labels if w is nil. They contain the length
// and the key but not the limit, so that the series continues if the limit changes.
func windowNames(limiter string, w *weir.Window) names {
	if w == nil {
		return names{}
	}
	return names{limiter: limiter, window: w.Label()}
}

// The families that Metrics count themselves.
var (
	descDecisions = prometheus.NewDesc("weir_decisions_total",
		"Requests by outcome, under the binding window. Requests that no limiter covers have an empty limiter and window, with the outcome misdirected if they were answered 421 for their host; denied requests an empty window.", []string{"limiter", "window", "outcome"}, nil)
	descNear = prometheus.NewDesc("weir_near_limit_total",
		"Requests that were admitted and left their caller less than a fifth of the limit.", []string{"limiter", "window"}, nil)
	descExempt = prometheus.NewDesc("weir_exempt_decisions_total",
		"Requests from callers that are exempt from the limiter.", []string{"limiter", "window"}, nil)
	descPenalties = prometheus.NewDesc("weir_penalty_decisions_total",
		"Requests that were refused because their caller is under the limiter's penalty, or that began one.", []string{"limiter", "window"}, nil)
	descFallbacks = prometheus.NewDesc("weir_fallback_decisions_total",
		"Requests that were decided without the store, by the limiter's on_store_failure.", []string{"limiter", "how"}, nil)
	descShadows = prometheus.NewDesc("weir_shadow_decisions_total",
		"What limiters in shadow mode would have decided; would_refuse includes those that they would answer 401; skipped: not evaluated, because too many of their takes were waiting for the store.", []string{"limiter", "outcome"}, nil)
	descCandidates = prometheus.NewDesc("weir_candidate_decisions_total",
		"How the candidate policy differs from the one in force, under the limiter in force.", []string{"limiter", "outcome"}, nil)
	descRejected = prometheus.NewDesc("weir_candidate_unauthenticated_total",
		"Of the newly refused requests, those that the candidate policy would answer 401, because they lack the credential that its limiter requires.", []string{"limiter"}, nil)
	descLatency = prometheus.NewDesc("weir_decision_duration_seconds",
		"Time from the arrival of a request at its limiter to the decision, including the store's answer.", nil, nil)
)

// A countedCollector collects them.
type countedCollector struct{ *Metrics }

func (m countedCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range [...]*prometheus.Desc{descDecisions, descNear, descExempt, descPenalties, descFallbacks, descShadows, descCandidates, descRejected, descLatency} {
		to <- d
	}
	for _, of := range settledCounters {
		to <- of.desc
	}
	to <- descHeld
	for _, d := range requestDescs {
		to <- d
	}
}

func (m countedCollector) Collect(to chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, n uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	keep := m.keep
	if m.sources.Load().Policy == nil {
		keep = math.MaxInt64 // the policy in force is unknown, so no series expires
	}
	now, windows, enforced := m.now(), map[names]bool{{}: true}, map[names]bool{}
	shadows, compared := map[names]bool{}, map[names]bool{}
	m.inForce(windows, enforced, shadows, compared)
	for _, s := range m.decisions.sweep(windows, now, keep) {
		if s.names == (names{}) {
			counter(descDecisions, s.total(int(answer.Unlimited)), "", "", answer.Unlimited.String())
			counter(descDecisions, s.total(slotMisdirected), "", "", answer.Misdirected.String())
			continue
		}
		for o := answer.Admitted; o <= answer.Unavailable; o++ {
			counter(descDecisions, s.total(int(o)), s.limiter, s.window, o.String())
		}
		counter(descNear, s.total(slotNear), s.limiter, s.window)
		counter(descExempt, s.total(slotExempt), s.limiter, s.window)
		counter(descPenalties, s.total(slotPenalty), s.limiter, s.window)
	}
	for _, s := range m.denials.sweep(enforced, now, keep) {
		counter(descDecisions, s.total(0), s.limiter, "", answer.Denied.String())
	}
	for _, of := range [...]struct {
		family  *family[string]
		desc    *prometheus.Desc
		inForce map[names]bool
		slots   []string
	}{
		{&m.fallbacks, descFallbacks, enforced, fallbackHow[:]},
		{&m.shadows, descShadows, shadows, shadowOutcome[:]},
		{&m.candidates, descCandidates, compared, candidateOutcome[:]},
	} {
		for _, s := range of.family.sweep(of.inForce, now, keep) {
			for i, name := range of.slots {
				counter(of.desc, s.total(i), s.limiter, name)
			}
			if of.desc == descCandidates {
				counter(descRejected, s.total(slotRejected), s.limiter)
			}
		}
	}
	m.collectSettled(to, now, keep)
	to <- m.latency.metric(descLatency)
	m.requests.collect(to, enforced, now, keep)
}

// inForce adds the names of everything in the policies. A series has to exist before it counts
// anything, so that the first refusal is an increase.
func (m *Metrics) inForce(windows, enforced, shadows, compared map[names]bool) {
	from := m.sources.Load()
	if from.Policy == nil {
		return
	}
	var candidate *weir.Policy
	if from.Candidate != nil {
		if p, ok := from.Candidate(); ok {
			candidate = &p
			compared[names{}] = true
		}
	}
	policy := from.Policy()
	for i := range policy.Limiters {
		l := &policy.Limiters[i]
		if l.Mode == weir.Shadow {
			shadows[names{limiter: l.Name}] = true
			continue
		}
		enforced[names{limiter: l.Name}] = true
		if candidate != nil {
			compared[names{limiter: l.Name}] = true
		}
		rows := l.Rows()
		for j := range rows {
			windows[windowNames(l.Name, &rows[j])] = true
		}
	}
	if candidate != nil {
		for i := range candidate.Limiters {
			if l := &candidate.Limiters[i]; l.Mode != weir.Shadow {
				compared[names{limiter: l.Name}] = true
			}
		}
	}
}
