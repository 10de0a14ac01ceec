package xds

import (
	"cmp"
	"fmt"

	limits "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/weirlimit/weir/internal/rls/config"
)

// A domain is a resource as a file has it. Files and resources are then read by the same rules.
type domain struct {
	Domain      string       `yaml:"domain"`
	Descriptors []descriptor `yaml:"descriptors,omitempty"`
}

type descriptor struct {
	Key         string       `yaml:"key"`
	Value       string       `yaml:"value,omitempty"`
	RateLimit   *limit       `yaml:"rate_limit,omitempty"`
	Descriptors []descriptor `yaml:"descriptors,omitempty"`
	Shadow      bool         `yaml:"shadow_mode,omitempty"`
	Detailed    bool         `yaml:"detailed_metric,omitempty"`
}

type limit struct {
	Requests  uint32     `yaml:"requests_per_unit"`
	Unit      string     `yaml:"unit,omitempty"`
	Unlimited bool       `yaml:"unlimited,omitempty"`
	Name      string     `yaml:"name,omitempty"`
	Replaces  []replaced `yaml:"replaces,omitempty"`
}

type replaced struct {
	Name string `yaml:"name"`
}

// filesOf returns a file for each resource, under the resource's name.
func filesOf(all []*limits.RateLimitConfig) ([]config.File, error) {
	files := make([]config.File, len(all))
	for i, r := range all {
		text, err := yaml.Marshal(domain{r.GetDomain(), descriptorsOf(r.GetDescriptors())})
		if err != nil {
			return nil, fmt.Errorf("resource %d: %w", i, err)
		}
		files[i] = config.File{Name: "resource " + cmp.Or(r.GetName(), r.GetDomain()), Text: text}
	}
	return files, nil
}

// hasUnknown reports whether a message, or one in it, has a field that this version does not know.
func hasUnknown(m protoreflect.Message) (unknown bool) {
	if len(m.GetUnknown()) > 0 {
		return true
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Message() == nil:
		case f.IsList():
			for i := range v.List().Len() {
				unknown = unknown || hasUnknown(v.List().Get(i).Message())
			}
		default:
			unknown = unknown || hasUnknown(v.Message())
		}
		return !unknown
	})
	return unknown
}

func descriptorsOf(from []*limits.RateLimitDescriptor) []descriptor {
	all := make([]descriptor, len(from))
	for i, d := range from {
		all[i] = descriptor{
			Key: d.GetKey(), Value: d.GetValue(), RateLimit: limitOf(d.GetRateLimit()), Descriptors: descriptorsOf(d.GetDescriptors()),
			Shadow: d.GetShadowMode(), Detailed: d.GetDetailedMetric(),
		}
	}
	return all
}

func limitOf(from *limits.RateLimitPolicy) *limit {
	if from == nil {
		return nil
	}
	l := &limit{Requests: from.GetRequestsPerUnit(), Unlimited: from.GetUnlimited(), Name: from.GetName()}
	if from.GetUnit() != limits.RateLimitUnit_UNKNOWN {
		l.Unit = from.GetUnit().String()
	}
	for _, r := range from.GetReplaces() {
		l.Replaces = append(l.Replaces, replaced{r.GetName()})
	}
	return l
}
