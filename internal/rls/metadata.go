package rls

import (
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// metadata returns what the response tells filters of the request: its domain, descriptors and
// hits, and the metadata of the descriptors that are not over their limits.
func metadata(r *pb.RateLimitRequest, c *call, out *pb.RateLimitResponse) *structpb.Struct {
	descriptors := make([]*structpb.Value, len(r.GetDescriptors()))
	for i, d := range r.GetDescriptors() {
		descriptors[i] = structpb.NewStructValue(described(d))
	}
	fields := map[string]*structpb.Value{
		"domain":      structpb.NewStringValue(r.GetDomain()),
		"descriptors": structpb.NewListValue(&structpb.ListValue{Values: descriptors}),
	}
	if hits := r.GetHitsAddend(); hits != 0 {
		fields["hitsAddend"] = structpb.NewNumberValue(float64(hits))
	}
	passed := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	for i := range c.matches {
		m := &c.matches[i]
		if m.group >= 0 && m.rule != nil && out.Statuses[i].Code == pb.RateLimitResponse_OK {
			merge(passed, m.rule.metadata)
		}
	}
	if len(passed.Fields) > 0 {
		fields["metadata"] = structpb.NewStructValue(passed)
	}
	return &structpb.Struct{Fields: fields}
}

func described(d *ratelimit.RateLimitDescriptor) *structpb.Struct {
	entries := make([]*structpb.Value, len(d.GetEntries()))
	for i, e := range d.GetEntries() {
		entries[i] = structpb.NewStringValue(e.GetKey() + "=" + e.GetValue())
	}
	fields := map[string]*structpb.Value{"entries": structpb.NewListValue(&structpb.ListValue{Values: entries})}
	if d.GetLimit() != nil {
		fields["limit"] = structpb.NewStringValue(d.GetLimit().String())
	}
	if hits := d.GetHitsAddend(); hits != nil {
		fields["hitsAddend"] = structpb.NewNumberValue(float64(hits.GetValue()))
	}
	return &structpb.Struct{Fields: fields}
}

// merge adds the fields of src that dst does not have, and those of structs in both. src is not
// changed.
func merge(dst, src *structpb.Struct) {
	for name, value := range src.GetFields() {
		own, there := dst.Fields[name]
		inner := value.GetStructValue()
		switch {
		case there && own.GetStructValue() != nil && inner != nil:
			merge(own.GetStructValue(), inner)
		case there:
		case inner != nil:
			copied := &structpb.Struct{Fields: map[string]*structpb.Value{}}
			merge(copied, inner)
			dst.Fields[name] = structpb.NewStructValue(copied)
		default:
			dst.Fields[name] = value
		}
	}
}
