package xds

import "google.golang.org/protobuf/reflect/protoreflect"

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
