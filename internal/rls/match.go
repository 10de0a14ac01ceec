package rls

import (
	"slices"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/rls/config"
)

// A call is the working memory of one request.
type call struct {
	matches  []match
	groups   []group
	keys     []keys
	asks     []weir.Ask
	decision weir.Decision
	scratch  weir.Scratch
	replaced []string
	refused  bool
	looking  bool // the next take only reads
}

func (c *call) reset() {
	clear(c.matches)
	clear(c.groups)
	clear(c.keys)
	clear(c.asks)
	clear(c.replaced)
	c.matches, c.groups, c.keys, c.asks, c.replaced = c.matches[:0], c.groups[:0], c.keys[:0], c.asks[:0], c.replaced[:0]
	c.decision, c.refused, c.looking = weir.Decision{}, false, false
}

// A match is what a descriptor of a request means.
type match struct {
	unlimited bool
	group     int // index into call.groups; -1: no limit applies
	current   *pb.RateLimitResponse_RateLimit
	rule      *rule // nil for an override
	stat      *stat
	limit     uint64 // at most weir.MaxLimit
	hits      uint64
	upTo      uint64 // the hits of the group up to this descriptor, this one included
	mode      mode
	unit      config.Unit
	shared    []string

	// set when the request is decided
	before, after uint64 // the count, as if this descriptor alone had been counted
	over          bool
}

// A mode is what a descriptor that is over its limit does.
type mode uint8

const (
	shadow mode = iota // nothing
	quota              // refuses if all others of this mode do
	enforced
)

// A group is the descriptors of a request that count in the same window.
type group struct {
	unit  config.Unit
	total uint64 // hits of all of them; at most maxHits
	limit uint64 // that total must fit under by its mode; at most weir.MaxLimit
	mode  mode
	spent bool // a quota that is over, or a count that is full: it is only read

	// Descriptors in quota mode, of a group in any mode: whether there are some, the limit of the
	// one that admits most, and whether even that is over.
	quotas     bool
	quota      uint64
	quotaSpent bool
}

// bound returns the limit of the next take: a quota binds until it is known to be over.
func (g *group) bound() uint64 {
	if g.mode == enforced && g.quotas && !g.quotaSpent {
		return min(g.limit, g.quota)
	}
	return g.limit
}

// exceed notes that a count does not admit the hits of the group, beside those that were counted
// before. It reports whether that refuses the request, whatever other quotas admit.
func (g *group) exceed(before uint64) (refuses bool) {
	hits := before + g.total
	g.quotaSpent = g.quotaSpent || g.quotas && hits > g.quota
	g.spent = g.spent || hits > g.limit
	return g.spent && g.mode == enforced
}

// maxHits is the number of hits that no limit admits. Larger numbers are the same.
const maxHits = weir.MaxLimit + 1

// match finds the limit of each descriptor, and the groups that are charged.
func (s *Service) match(rules *rules, r *pb.RateLimitRequest, c *call) error {
	root := rules.Domain(r.GetDomain())
	if root == nil {
		s.metrics.unknownDomain()
	}
	for i, d := range r.GetDescriptors() {
		m := match{group: -1, hits: hitsOf(r, d), mode: enforced}
		if root != nil {
			if err := checkDescriptor(i, d); err != nil {
				return err
			}
			s.find(rules, root, r.GetDomain(), d, &m)
		}
		if m.rule != nil {
			c.replaced = append(c.replaced, m.rule.Replaces...)
			if s.options.Quota && m.mode == enforced {
				m.mode = quota
			}
		}
		c.matches = append(c.matches, m)
	}
	for i := range c.matches {
		m := &c.matches[i]
		if m.current == nil || m.rule != nil && m.rule.Name != "" && slices.Contains(c.replaced, m.rule.Name) {
			m.current = nil
			continue
		}
		k := keys{r.GetDomain(), r.GetDescriptors()[i].GetEntries(), m.shared}
		if err := c.join(m, &k); err != nil {
			return err
		}
	}
	c.limitGroups()
	return nil
}

// hitsOf returns the hits of a descriptor: its own, of which 0 only looks, else those of the
// request, at least one.
func hitsOf(r *pb.RateLimitRequest, d *ratelimit.RateLimitDescriptor) uint64 {
	if own := d.GetHitsAddend(); own != nil {
		return min(own.GetValue(), maxHits)
	}
	return min(uint64(max(r.GetHitsAddend(), 1)), maxHits)
}

// checkDescriptor returns why the descriptor with an index cannot be counted; nil: it can.
func checkDescriptor(i int, d *ratelimit.RateLimitDescriptor) error {
	if d.GetIsNegativeHits() {
		return status.Errorf(codes.InvalidArgument, "descriptors[%d].is_negative_hits is true: hits cannot be given back, so leave it out", i)
	}
	o := d.GetLimit()
	if o == nil {
		return nil
	}
	if n := o.GetUnitMultiplier().GetValue(); n > 1 {
		return status.Errorf(codes.InvalidArgument, "descriptors[%d].limit.unit_multiplier is %d: a limit is for one unit, so leave it out", i, n)
	}
	if u := int32(o.GetUnit()); u < 0 || u > int32(config.Week) || !config.Unit(u).CanCount() {
		return status.Errorf(codes.InvalidArgument, "descriptors[%d].limit.unit is %v: %s is allowed", i, o.GetUnit(), allowedUnits)
	}
	return nil
}

// find sets what a descriptor means: its override, or the rule that its entries lead to.
func (s *Service) find(rules *rules, root *config.Node, domain string, d *ratelimit.RateLimitDescriptor, m *match) {
	if o := d.GetLimit(); o != nil {
		unit := config.Unit(o.GetUnit())
		m.current = currentLimit(o.GetRequestsPerUnit(), unit, "")
		m.limit, m.unit = limitOf(o.GetRequestsPerUnit()), unit
		m.stat = s.metrics.byValue(domain, d, nil)
		return
	}
	node, entries := root, d.GetEntries()
	for i, e := range entries {
		next, found := node.Step(e.GetKey(), e.GetValue())
		if next == nil {
			return
		}
		if found == config.Wildcard && next.Share != "" {
			if m.shared == nil {
				m.shared = make([]string, len(entries))
			}
			m.shared[i] = next.Share
		}
		node = next
	}
	if node.Rule == nil || len(entries) == 0 {
		return
	}
	m.rule = rules.of[node.Rule]
	if m.rule.Unlimited {
		m.unlimited = true
		return
	}
	m.current, m.limit, m.unit, m.stat = m.rule.current, limitOf(m.rule.Requests), m.rule.Unit, m.rule.stat
	if m.stat == nil {
		m.stat = s.metrics.byValue(domain, d, root)
	}
	switch {
	case m.rule.ShadowMode:
		m.mode = shadow
	case m.rule.QuotaMode:
		m.mode = quota
	}
}

func limitOf(requests uint32) uint64 { return min(uint64(requests), weir.MaxLimit) }

func currentLimit(requests uint32, u config.Unit, name string) *pb.RateLimitResponse_RateLimit {
	return &pb.RateLimitResponse_RateLimit{
		RequestsPerUnit: uint32(limitOf(requests)), Unit: pb.RateLimitResponse_RateLimit_Unit(u), Name: name,
	}
}

// join adds a descriptor to the group that counts in its window.
func (c *call) join(m *match, k *keys) error {
	for i := range c.groups {
		if c.groups[i].unit == m.unit && c.keys[i].counts(k) {
			m.group = i
			break
		}
	}
	if m.group < 0 {
		if len(c.groups) == weir.MaxCharges {
			return status.Errorf(codes.InvalidArgument, "the descriptors of the request have more than %d counts: all are charged in one step, or none, and that takes so many at most", weir.MaxCharges)
		}
		m.group = len(c.groups)
		c.groups = append(c.groups, group{unit: m.unit})
		c.keys = append(c.keys, *k)
	}
	g := &c.groups[m.group]
	g.total = min(g.total+m.hits, maxHits)
	m.upTo = g.total
	g.mode = max(g.mode, m.mode)
	return nil
}

// limitGroups sets the limits of each group. A descriptor admits its own hits and those of the
// group before it: the later ones may go beyond its limit. Of enforced limits the lowest binds.
// Quotas refuse a request only if all are over, so of those the highest does.
func (c *call) limitGroups() {
	for i := range c.groups {
		c.groups[i].limit = weir.MaxLimit
	}
	for i := range c.matches {
		m := &c.matches[i]
		if m.group < 0 {
			continue
		}
		g := &c.groups[m.group]
		limit := min(m.limit+g.total-m.upTo, weir.MaxLimit)
		if m.mode == g.mode {
			g.limit = min(g.limit, limit)
		}
		if m.mode == quota {
			g.quotas, g.quota = true, max(g.quota, limit)
		}
	}
	for i := range c.groups {
		if g := &c.groups[i]; g.mode == quota {
			g.limit = g.quota
		}
	}
}
