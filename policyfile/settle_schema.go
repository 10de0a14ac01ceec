package policyfile

import (
	"reflect"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
)

// addSettling adds the schemas of what cost, count and in_flight consist of. It needs that of
// units.
func addSettling(schemas map[reflect.Type]*jsonschema.Schema, matching func(pattern string) *jsonschema.Schema) {
	lowest, highest := 200.0, 599.0
	schemas[reflect.TypeFor[outcome]()] = &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Type: "integer", Minimum: &lowest, Maximum: &highest}, matching(`[2-5](xx|[0-9]{2})`)}}
	const member = `[^\x00-\x20".\\\x7f]+`
	schemas[reflect.TypeFor[from]()] = matching(`(header:` + weir.SourceOf(identity.Header+":X-Cost").NamePattern() + `|json:` + member + `(\.` + member + `){0,7})`)
	schemas[reflect.TypeFor[reserve]()] = numberOr[asked](schemas)
	schemas[reflect.TypeFor[cost]()] = numberOr[told](schemas)
}

// numberOr returns the schema of a number of units or a mapping T, which is not empty.
func numberOr[T any](schemas map[reflect.Type]*jsonschema.Schema) *jsonschema.Schema {
	mapping, err := jsonschema.For[T](&jsonschema.ForOptions{TypeSchemas: schemas})
	if err != nil {
		panic(err) // as in Schema
	}
	describe(mapping, reflect.TypeFor[T]())
	mapping.MinProperties = jsonschema.Ptr(1)
	if plus := mapping.Properties["plus"]; plus != nil {
		plus.Minimum = jsonschema.Ptr(0.0)
	}
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{schemas[reflect.TypeFor[units]()], mapping}}
}

// describeCount completes the schema of count: one of two lists.
func describeCount(s *jsonschema.Schema) {
	describe(s, reflect.TypeFor[count]())
	for _, list := range s.Properties {
		bound(list, 1, weir.MaxStatuses)
	}
	s.MinProperties, s.MaxProperties = jsonschema.Ptr(1), jsonschema.Ptr(1)
}

// windowsOrInFlight returns the alternatives of a limiter: it has a window, or a limit in flight.
func windowsOrInFlight() []*jsonschema.Schema {
	some := map[string]*jsonschema.Schema{"windows": {MinItems: jsonschema.Ptr(1)}}
	return []*jsonschema.Schema{{Required: []string{"windows"}, Properties: some}, {Required: []string{"in_flight"}}}
}
