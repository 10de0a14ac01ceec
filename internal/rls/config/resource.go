package config

import (
	"fmt"

	limits "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
)

// OfResource returns a resource of a control plane as one of the files of Parse. index is its place
// in the response, which names it if it has no name.
func OfResource(r *limits.RateLimitConfig, index int) File {
	name := fmt.Sprint(index)
	if r.GetName() != "" {
		name = fmt.Sprintf("%q", r.GetName())
	}
	if r.GetDomain() != "" {
		name += fmt.Sprintf(" of domain %q", r.GetDomain())
	}
	return File{Name: "resource " + name, resource: r}
}

// fromResource returns the document of a resource. It has no lines.
func (r *reading) fromResource(from *limits.RateLimitConfig) document {
	return document{domain: text{string: from.GetDomain()}, descriptors: r.fromDescriptors(from.GetDescriptors(), nil)}
}

func (r *reading) fromDescriptors(from []*limits.RateLimitDescriptor, above []entry) []descriptor {
	if len(above) == MaxDepth && len(from) > 0 {
		r.at = above
		r.report(0, "descriptors are nested more than %d deep, which is the max", MaxDepth)
		return nil
	}
	all := make([]descriptor, len(from))
	for i, d := range from {
		all[i] = descriptor{
			key: text{string: d.GetKey()}, value: text{string: d.GetValue()}, limit: fromPolicy(d.GetRateLimit()),
			descriptors: r.fromDescriptors(d.GetDescriptors(), append(above[:len(above):len(above)], entry{d.GetKey(), d.GetValue()})),
			shadow:      d.GetShadowMode(), detailed: d.GetDetailedMetric(),
		}
	}
	return all
}

func fromPolicy(from *limits.RateLimitPolicy) *limit {
	if from == nil {
		return nil
	}
	l := &limit{requests: from.GetRequestsPerUnit(), unlimited: from.GetUnlimited(), name: from.GetName()}
	if from.GetUnit() != limits.RateLimitUnit_UNKNOWN {
		l.unit.string = from.GetUnit().String()
	}
	for _, r := range from.GetReplaces() {
		l.replaces = append(l.replaces, text{string: r.GetName()})
	}
	return l
}
