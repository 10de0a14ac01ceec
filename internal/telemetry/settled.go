package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir"
)

// The slots of a series of settlements.
const (
	slotReserved   = iota // units
	slotGivenBack         // units
	slotOverrun           // units
	slotStranded          // units
	slotUnreported        // requests
	slotTaken             // slots in flight
	slotReturned          // slots in flight
)

// settledCounters are the families of settlements, by their slot.
var settledCounters = [...]struct {
	slot int
	desc *prometheus.Desc
}{
	{slotReserved, settledDesc("weir_reserved_units_total", "Units that were charged before their requests were served, by limiters whose answers change that: a cost from the answer, or count.")},
	{slotGivenBack, settledDesc("weir_given_back_units_total", "Reserved units that were given back, because a request has cost less or its status does not count.")},
	{slotOverrun, settledDesc("weir_overrun_units_total", "Units that requests have cost beyond what was reserved for them. They are charged, also beyond the limit: raise the reserve.")},
	{slotStranded, settledDesc("weir_stranded_units_total", "Units that were to be given back or charged, and that the store may not have counted. They stay as they were charged until their windows end.")},
	{slotUnreported, settledDesc("weir_unreported_cost_requests_total", "Requests whose answer did not report what they have cost, so that what was reserved stays charged.")},
}

var descHeld = settledDesc("weir_slots_in_flight", "Requests of this process that hold a slot of their limiter's in_flight.")

func settledDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, []string{"limiter"}, nil)
}

// held returns how many slots are in use, of a series of settlements.
func (s *series) held() int64 {
	returned := s.total(slotReturned) // read first, so that the result is not negative
	return int64(s.total(slotTaken) - returned)
}

// isHeld reports whether requests will end in a series.
func isHeld(s *series) bool { return s.held() > 0 }

// reserve counts what was charged for a request, if its answer can change that.
func (m *Metrics) reserve(lane int, d *weir.Decision) {
	if l := d.Limiter(); l != nil && l.SettlesUnits() {
		limiterSeries(&m.settled, l).cells[lane].n[slotReserved].Add(uint64(d.Cost))
	}
}

// Settled counts what became of a reservation: it is for weir.Options.OnSettled. Limiters in Shadow
// mode are left out.
func (m *Metrics) Settled(s weir.Settled) {
	if s.Shadow {
		return
	}
	lane := m.lanes.get()
	defer m.lanes.put(lane)
	n := &limiterSeries(&m.settled, s.Limiter).cells[lane.i].n
	if !s.Limiter.SettlesUnits() { // the handler has told
		n[slotReserved].Add(uint64(s.Reserved))
	}
	switch {
	case s.Unreported:
		n[slotUnreported].Add(1)
	case s.Lost > 0:
		n[slotStranded].Add(uint64(s.Lost))
	case s.Used < s.Reserved:
		n[slotGivenBack].Add(uint64(s.Reserved - s.Used))
	default:
		n[slotOverrun].Add(uint64(s.Used - s.Reserved))
	}
}

// Held counts the slots that requests take and give back: it is for weir.Options.OnHeld.
func (m *Metrics) Held(l *weir.Limiter, slots int64) {
	lane := m.lanes.get()
	defer m.lanes.put(lane)
	n := &limiterSeries(&m.settled, l).cells[lane.i].n
	if slots > 0 {
		n[slotTaken].Add(uint64(slots))
	} else {
		n[slotReturned].Add(uint64(-slots))
	}
}

// collectSettled exports the settlements of the limiters that have any.
func (m *Metrics) collectSettled(to chan<- prometheus.Metric, now time.Time, keep time.Duration) {
	inForce := map[names]bool{}
	if policy := m.sources.Load().Policy; policy != nil {
		p := policy()
		for i := range p.Limiters {
			if l := &p.Limiters[i]; l.Mode != weir.Shadow && l.Settles() {
				inForce[names{limiter: l.Name}] = true
			}
		}
	}
	for _, s := range m.settled.sweep(inForce, now, keep) {
		for _, of := range settledCounters {
			to <- prometheus.MustNewConstMetric(of.desc, prometheus.CounterValue, float64(s.total(of.slot)), s.limiter)
		}
		to <- prometheus.MustNewConstMetric(descHeld, prometheus.GaugeValue, float64(s.held()), s.limiter)
	}
}
