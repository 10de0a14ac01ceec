package weir

import (
	"fmt"
)

// compiled is a policy ready to serve. It is immutable; Swap replaces it as a whole.
type compiled struct {
	policy Policy
	named  map[string]*limiter
	routes *sites // of the enforced limiters
	all    *sites // those of all limiters; nil if none is in Shadow mode
}

// A limiter is a Limiter with precomputed values for its requests.
type limiter struct {
	Limiter
	cost      int64
	rows      int        // len(all)
	all       []Window   // Limiter.Rows: windows, and then the limit in flight
	awaits    Awaits     // what an admitted request needs to be told
	scopes    [][]byte   // for each window, the first bytes of its keys
	ends      []*Ends    // for each window; nil: it ends one length after its first unit
	lengths   []int64    // for each window, the longest that it can be, in seconds
	special   *special   // nil if the limiter has no exempt and denied callers and no overrides
	plans     *planned   // nil if the limiter has no plans
	gate      *gate      // nil if the limiter has no penalty
	responses *Responses // of the policy
	named     cover      // for requests that name the limiter
	covers    []cover    // for each route
	byPath    []string   // the parameters of the route that windows count by
	shares    bool       // it requires a credential, and a window counts all callers together
}

// compile returns the policy ready to serve, and its problems. If it has any, the first result must
// not be used.
func compile(p Policy, sources []Source) (*compiled, []Problem) {
	p = p.clone()
	c := &compiled{
		policy: p,
		named:  make(map[string]*limiter, len(p.Limiters)),
		routes: newSites(),
	}
	for i := range p.Limiters {
		if p.Limiters[i].Mode == Shadow {
			c.all = newSites()
			break
		}
	}
	check := checker{sources: sources}
	names := make(map[string]int, len(p.Limiters))
	if len(p.Limiters) == 0 {
		check.limiter = -1
		check.add("limiters", -1, "", "no limiters: a policy declares at least one")
	}
	for i := range p.Limiters {
		l := &p.Limiters[i]
		check.limiter = i
		check.checkLimiter(l, names)
		names[l.Name] = i
		ready := &limiter{
			Limiter: *l, cost: max(l.Cost, 1), special: newSpecial(l), plans: newPlanned(l), gate: newGate(l),
			responses: &c.policy.Responses, byPath: countedParameters(l), shares: l.Requires != "" && l.isShared(), all: l.Rows(), awaits: l.awaits(),
		}
		ready.named.limiter = ready
		for j := range l.Routes {
			ready.covers = append(ready.covers, cover{ready, &l.Routes[j]})
		}
		ready.rows = len(ready.all)
		for _, w := range ready.all {
			ends, length := check.endsOf(l, w)
			ready.ends, ready.lengths = append(ready.ends, ends), append(ready.lengths, length)
			ready.scopes = append(ready.scopes, l.scope(&w))
		}
		c.named[l.Name] = ready
		for j := range l.Routes {
			check.addRoute(c, ready, &l.Routes[j], j)
		}
	}
	c.routes.link()
	if c.all != nil {
		c.all.link()
	}
	check.checkResponses(&p)
	check.checkShadows(c)
	return c, check.problems
}

func (c *checker) addRoute(to *compiled, l *limiter, r *Route, index int) {
	if err := r.problem(); err != nil {
		c.add("routes", index, r.String(), "route %q: %v", r.String(), err)
		return
	}
	by := &l.covers[index]
	if to.all != nil {
		taken, ok := to.all.add(*r, by)
		if !ok && taken.limiter == l && l.Mode == Shadow {
			c.add("routes", index, r.String(), "route %q occurs twice: remove one", r)
		}
	}
	if l.Mode == Shadow {
		return
	}
	taken, ok := to.routes.add(*r, by)
	if ok {
		return
	}
	if taken.limiter == l {
		c.add("routes", index, r.String(), "route %q occurs twice: remove one", r)
		return
	}
	same := "letter case and trailing slashes make no difference"
	if taken.route.Parameters() != nil {
		same = "letter case, trailing slashes and the names of parameters make no difference"
	}
	c.add("routes", index, r.String(), "route %q is unreachable: limiter %q has %q already (%s)", r, taken.limiter.Name, taken.route, same)
}

// clone returns a deep copy, so that changes of p have no effect on it.
func (p Policy) clone() Policy {
	out := Policy{Limiters: append([]Limiter(nil), p.Limiters...), Responses: p.Responses.clone()}
	for i := range out.Limiters {
		l := &out.Limiters[i]
		l.Routes = append([]Route(nil), l.Routes...)
		l.Exempt = append([]Who(nil), l.Exempt...)
		l.Notify = append([]int64(nil), l.Notify...)
		l.Deny = append([]Who(nil), l.Deny...)
		l.Overrides = append([]Override(nil), l.Overrides...)
		l.Plans = l.Plans.clone()
		l.Count.Statuses = append([]Statuses(nil), l.Count.Statuses...)
		l.InFlight.Key = l.InFlight.Key.clone()
		l.Windows = append([]Window(nil), l.Windows...)
		for j := range l.Windows {
			l.Windows[j].Key = l.Windows[j].Key.clone()
		}
	}
	return out
}

func (k Key) clone() Key {
	out := append(Key(nil), k...)
	for i := range out {
		out[i] = append(Part(nil), out[i]...)
	}
	return out
}

// limiterFor returns the limiter that a request names.
func (c *compiled) limiterFor(name string) (*limiter, error) {
	l := c.named[name]
	if l == nil {
		return nil, fmt.Errorf("decide: the policy has no limiter %q", name)
	}
	return l, nil
}
