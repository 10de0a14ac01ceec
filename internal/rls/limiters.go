package rls

import (
	"encoding/binary"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/rls/config"
)

// The key sources of descriptors. The domain comes first, so that all counts of a domain are in one
// slot of a Redis Cluster, where one script can charge the descriptors of a request together.
const (
	domainSource     = "domain"
	descriptorSource = "descriptor"
)

var sources = []weir.Source{
	{Name: domainSource, Kind: weir.Credential, About: "one domain", Counts: "the domain of the request"},
	{Name: descriptorSource, Kind: weir.Credential, About: "one descriptor", Counts: "the entries of a descriptor"},
}

// limiterNames are the names of the limiters, by unit. There is one for each unit, whatever the
// configuration is, and each request brings its limits: a count belongs to a descriptor and a unit,
// so it stays when a limit is changed, moved in the tree, or overridden by a request.
var limiterNames = [...]string{
	config.Second: "rls-second", config.Minute: "rls-minute", config.Hour: "rls-hour",
	config.Day: "rls-day", config.Week: "rls-week", config.Month: "rls-month",
}

// Sources returns the key sources of the limiters of Policy.
func Sources() []weir.Source { return sources }

// Policy returns the limiters that count descriptors under o, of which it reads Align and
// OnStoreFailure.
func Policy(o *Options) (p weir.Policy) {
	for _, u := range config.Units {
		p.Limiters = append(p.Limiters, weir.Limiter{
			Name: limiterNames[u], Align: o.Align, OnStoreFailure: o.OnStoreFailure,
			Windows: []weir.Window{{Limit: weir.MaxLimit, Per: u.Per(), Key: weir.Key{{domainSource}, {descriptorSource}}}},
		})
	}
	return p
}

// keys are what one descriptor is counted by.
type keys struct {
	domain  string
	entries []*ratelimit.RateLimitDescriptor_Entry
	// shared are the patterns in place of values (share_threshold), by entry; a missing or an empty
	// one is none.
	shared []string
}

// AppendKey implements weir.Keys. Each key and each value has its length before it, so that no two
// descriptors have the same bytes.
func (k *keys) AppendKey(dst []byte, source string) ([]byte, bool) {
	switch source {
	case domainSource:
		return append(dst, k.domain...), true
	case descriptorSource:
		for i, e := range k.entries {
			dst = appendText(dst, e.GetKey())
			dst = appendText(dst, k.value(i))
		}
		return dst, true
	}
	return dst, false
}

func appendText(dst []byte, text string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(text)))
	return append(dst, text...)
}

// value returns the value that entry i is counted by.
func (k *keys) value(i int) string {
	if i < len(k.shared) && k.shared[i] != "" {
		return k.shared[i]
	}
	return k.entries[i].GetValue()
}

// counts reports whether o counts in the same windows.
func (k *keys) counts(o *keys) bool {
	if k.domain != o.domain || len(k.entries) != len(o.entries) {
		return false
	}
	for i := range k.entries {
		if k.entries[i].GetKey() != o.entries[i].GetKey() || k.value(i) != o.value(i) {
			return false
		}
	}
	return true
}
