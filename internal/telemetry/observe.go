package telemetry

import (
	"fmt"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
)

// The slots of a series of decisions are the outcomes, and after them:
const (
	slotNear   = int(httplimit.Unavailable) + 1 + iota // admitted, with little left
	slotExempt                                         // of a caller that is never refused
)

// The slots of the other families, and how they are told.
var (
	fallbackHow      = [...]string{"counted_locally", "allowed_uncounted", "store_unavailable"}
	shadowOutcome    = [...]string{"would_admit", "would_refuse", "skipped"}
	candidateOutcome = [...]string{"same", "newly_refused", "newly_admitted"}
)

// Observe counts one decision: what httplimit.Options.Observe is to call. It takes some 40 ns, allocates nothing where it has seen
// the window before, and keeps nothing of what it is given but pointers into the policy.
func (m *Metrics) Observe(o httplimit.Observation) {
	lane := m.lanes.take()
	s := m.decisions.find(o.Window)
	if s == nil {
		s = m.decisions.know(o.Window, windowNames(o.Limiter, o.Window))
	}
	counts := &s.cells[lane.i].n
	if int(o.Outcome) < slotNear {
		counts[o.Outcome].Add(1)
	}
	if d := o.Decision; d != nil {
		m.latency.observe(lane.i, o.Latency)
		if b := d.Standings(); len(b) > 0 {
			if o.Outcome == httplimit.Admitted && b[0].Near() {
				counts[slotNear].Add(1)
			}
			if d.Outcome != weir.Counted {
				m.fallback(lane.i, b[0].Limiter, d.Outcome)
			}
		}
		if d.Exempt {
			counts[slotExempt].Add(1)
		}
	}
	m.lanes.give(lane)
}

func (m *Metrics) fallback(lane int, l *weir.Limiter, outcome weir.Outcome) {
	if i := int(outcome) - int(weir.CountedLocally); i >= 0 && i < len(fallbackHow) {
		limiterSeries(&m.fallbacks, l).cells[lane].n[i].Add(1)
	}
}

// Shadow counts what a limiter in Shadow mode would have said: what weir.Options.OnShadow is to call.
func (m *Metrics) Shadow(s weir.Shadowed) {
	i := 0
	switch {
	case s.Skipped:
		i = 2
	case s.Decision != nil && !s.Decision.Allowed:
		i = 1
	}
	lane := m.lanes.take()
	limiterSeries(&m.shadows, s.Limiter).cells[lane.i].n[i].Add(1)
	m.lanes.give(lane)
}

// Candidate counts how the candidate policy differs from the one in force, under the limiter in force, or the candidate's where
// only that covers the request: what weir.Options.OnCandidate is to call.
func (m *Metrics) Candidate(c weir.Compared) {
	i := 0
	switch {
	case c.Live.Allowed && !c.Candidate.Allowed:
		i = 1
	case !c.Live.Allowed && c.Candidate.Allowed:
		i = 2
	}
	var l *weir.Limiter
	for _, d := range [...]*weir.Decision{c.Live, c.Candidate} {
		if b := d.Standings(); l == nil && len(b) > 0 {
			l = b[0].Limiter
		}
	}
	lane := m.lanes.take()
	limiterSeries(&m.candidates, l).cells[lane.i].n[i].Add(1)
	m.lanes.give(lane)
}

func limiterSeries(f *family[*weir.Limiter], l *weir.Limiter) *series {
	if s := f.find(l); s != nil {
		return s
	}
	if l == nil {
		return f.know(nil, names{})
	}
	return f.know(l, names{limiter: l.Name})
}

// windowNames returns the labels of a window, nil where there is none: its length and key, without the limit, so that a limit that
// changes goes on in the same series.
func windowNames(limiter string, w *weir.Window) names {
	if w == nil {
		return names{}
	}
	return names{limiter, fmt.Sprintf("%ds by %s", w.Per/time.Second, w.Key)}
}

// The families that are counted here.
var (
	descDecisions = prometheus.NewDesc("weir_decisions_total",
		"Requests by what became of them, under the window that bound; what no limiter covers has neither limiter nor window.", []string{"limiter", "window", "outcome"}, nil)
	descNear = prometheus.NewDesc("weir_near_limit_total",
		"Requests that were admitted with less than a fifth of the limit left to their caller.", []string{"limiter", "window"}, nil)
	descExempt = prometheus.NewDesc("weir_exempt_decisions_total",
		"Requests of callers that the limiter never refuses.", []string{"limiter", "window"}, nil)
	descFallbacks = prometheus.NewDesc("weir_fallback_decisions_total",
		"Requests that were decided without the store, by what the limiter's on_store_failure made of them.", []string{"limiter", "how"}, nil)
	descShadows = prometheus.NewDesc("weir_shadow_decisions_total",
		"What limiters in shadow mode would have said; skipped: not asked, because too many of their takes waited for the store.", []string{"limiter", "outcome"}, nil)
	descCandidates = prometheus.NewDesc("weir_candidate_decisions_total",
		"How the candidate policy differs from the one in force, under the limiter in force.", []string{"limiter", "outcome"}, nil)
	descLatency = prometheus.NewDesc("weir_decision_duration_seconds",
		"From the arrival of a request at its limiter to the decision, the store's answer included.", nil, nil)
)

// counted collects them.
type counted struct{ *Metrics }

func (m counted) Describe(to chan<- *prometheus.Desc) {
	for _, d := range [...]*prometheus.Desc{descDecisions, descNear, descExempt, descFallbacks, descShadows, descCandidates, descLatency} {
		to <- d
	}
}

func (m counted) Collect(to chan<- prometheus.Metric) {
	tell := func(d *prometheus.Desc, n uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	keep := m.keep
	if m.sources.Load().Policy == nil {
		keep = math.MaxInt64 // nobody knows what is in force
	}
	now, windows, enforced := m.now(), map[names]bool{{}: true}, map[names]bool{}
	shadows, compared := map[names]bool{}, map[names]bool{}
	m.inForce(windows, enforced, shadows, compared)
	for _, s := range m.decisions.sweep(windows, now, keep) {
		if s.names == (names{}) {
			tell(descDecisions, s.total(int(httplimit.Unlimited)), "", "", httplimit.Unlimited.String())
			continue
		}
		for o := httplimit.Admitted; o <= httplimit.Unavailable; o++ {
			tell(descDecisions, s.total(int(o)), s.limiter, s.window, o.String())
		}
		tell(descNear, s.total(slotNear), s.limiter, s.window)
		tell(descExempt, s.total(slotExempt), s.limiter, s.window)
	}
	for _, of := range [...]struct {
		family  *family[*weir.Limiter]
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
				tell(of.desc, s.total(i), s.limiter, name)
			}
		}
	}
	to <- m.latency.metric(descLatency)
}

// inForce fills in the names of everything that the policies have: a series that is there before it has counted anything makes the
// first refusal an increase.
func (m *Metrics) inForce(windows, enforced, shadows, compared map[names]bool) {
	ask := m.sources.Load()
	if ask.Policy == nil {
		return
	}
	var candidate *weir.Policy
	if ask.Candidate != nil {
		if p, ok := ask.Candidate(); ok {
			candidate = &p
			compared[names{}] = true
		}
	}
	policy := ask.Policy()
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
		for j := range l.Windows {
			windows[windowNames(l.Name, &l.Windows[j])] = true
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
