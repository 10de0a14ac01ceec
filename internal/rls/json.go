package rls

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/weirlimit/weir/internal/plaintext"
)

// maxShown is the max length of a name or a value of the caller in an error, in bytes.
const maxShown = 80

// A problem is what is wrong with a body of /json: for the caller, and for the log, which has no
// values of the request, because those of descriptors can be credentials.
type problem struct{ answer, log string }

func (p problem) isNone() bool { return p == problem{} }

// same is a problem without a value.
func same(text string) problem { return problem{text, text} }

// problemOf returns what is wrong with a body that protojson did not decode as m, and err is its
// error: the field, its value, and what is allowed. If no field is wrong, it is the text of err,
// which has the position.
func problemOf(m protoreflect.Message, body []byte, err error) problem {
	if len(bytes.TrimSpace(body)) == 0 {
		return same("it is empty: an object is allowed")
	}
	if json.Valid(body) {
		if p := wrongField(m, "", bytes.TrimSpace(body)); !p.isNone() {
			return p
		}
	}
	// protojson varies the blank after "proto:"
	text := strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\u00a0", " "), "proto: ")
	p := problem{plaintext.Line(text, 2*maxShown), "its syntax is wrong"}
	if at := position.FindString(text); at != "" {
		p.log += " " + at
	}
	return p
}

// position matches where protojson found an error.
var position = regexp.MustCompile(`\(line \d+:\d+\)`)

// wrongField returns the problem of the first field that makes object no m, in the order of their
// names. at is where the object is; empty: it is the body. The zero problem means that there is no
// such field.
func wrongField(m protoreflect.Message, at string, object json.RawMessage) (p problem) {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(object, &values); err != nil || values == nil {
		return wrongValue(at, object, "an object")
	}
	fields := m.Descriptor().Fields()
	for _, name := range slices.Sorted(maps.Keys(values)) {
		at, value := strings.TrimPrefix(at+"."+name, "."), values[name]
		field := fields.ByJSONName(name)
		if field == nil {
			field = fields.ByTextName(name)
		}
		switch {
		case field == nil:
			p = same(fmt.Sprintf("unknown field %q: %s", plaintext.Line(at, maxShown), allowedFields(fields)))
		case string(value) == "null": // as if the field were not there
		case field.Kind() == protoreflect.StringKind && value[0] == '"':
			// If something is wrong, it is an escape or a byte, which protojson names.
		case field.IsList():
			p = wrongItem(m.NewField(field).List(), at, value)
		case isObject(field):
			p = wrongField(m.NewField(field).Message(), at, value)
		case protojson.Unmarshal(fmt.Appendf(nil, "{%q:%s}", field.JSONName(), value), m.New().Interface()) != nil:
			p = wrongValue(at, value, kindOf(field))
		}
		if !p.isNone() {
			return p
		}
	}
	return problem{}
}

// wrongItem returns the problem of the first object that cannot be in a list.
func wrongItem(list protoreflect.List, at string, value json.RawMessage) problem {
	var items []json.RawMessage
	if err := json.Unmarshal(value, &items); err != nil {
		return wrongValue(at, value, "a list")
	}
	for i, item := range items {
		if p := wrongField(list.NewElement().Message(), fmt.Sprintf("%s[%d]", at, i), item); !p.isNone() {
			return p
		}
	}
	return problem{}
}

// isObject reports whether JSON has an object for a field. It has none for wrappers of numbers.
func isObject(field protoreflect.FieldDescriptor) bool {
	return field.Message() != nil && field.Message().ParentFile().Package() != "google.protobuf"
}

func wrongValue(at string, value json.RawMessage, allowed string) problem {
	if at == "" {
		at = "it"
	}
	at = plaintext.Line(at, maxShown)
	return problem{
		answer: fmt.Sprintf("%s is %s: %s is allowed", at, plaintext.Line(string(value), maxShown), allowed),
		log:    fmt.Sprintf("%s has another value: %s is allowed", at, allowed),
	}
}

// kindOf names the values of a field that is no object.
func kindOf(field protoreflect.FieldDescriptor) string {
	kind := field.Kind()
	if field.Message() != nil {
		kind = field.Message().Fields().ByName("value").Kind()
	}
	switch kind {
	case protoreflect.BoolKind:
		return "true or false"
	case protoreflect.Uint32Kind:
		return "a whole number from 0 to 4294967295"
	case protoreflect.Uint64Kind:
		return "a whole number from 0 to 18446744073709551615"
	case protoreflect.EnumKind:
		return allowedUnits
	}
	return "a string"
}

// allowedUnits are the values of the only field with an enumeration, as far as the service limits
// by them.
const allowedUnits = "one of SECOND, MINUTE, HOUR, DAY, WEEK and MONTH"

func allowedFields(fields protoreflect.FieldDescriptors) string {
	names := make([]string, fields.Len())
	for i := range names {
		names[i] = string(fields.Get(i).Name())
	}
	return strings.Join(names, ", ") + " are allowed"
}
