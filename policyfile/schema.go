package policyfile

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/weirlimit/weir"
)

// Schema is [Reader.Schema] of the zero Reader.
func Schema() []byte { return Reader{}.Schema() }

// Schema returns a JSON Schema (draft 2020-12) of the policy files that r reads, for editors. It is
// derived from the types that files are read into. It accepts every file that Parse accepts, except
// for unusual spacing. It cannot detect problems between values, such as two limiters of one name.
func (r Reader) Schema() []byte {
	s, err := jsonschema.For[document](&jsonschema.ForOptions{TypeSchemas: r.typeSchemas()})
	if err != nil {
		panic(err) // the types are fixed, and a test generates their schema
	}
	s.Schema = "https://json-schema.org/draft/2020-12/schema"
	s.Title = "Weir policy"
	s.Description = "All limiters of a rate-limiting edge. 'weir policy check FILE' reports every problem in a policy."
	describe(s, reflect.TypeFor[document]())
	limiters := s.Properties["limiters"]
	bound(limiters, 1, MaxLimiters)
	describe(limiters.Items, reflect.TypeFor[limiter]())
	bound(limiters.Items.Properties["routes"], 0, MaxRoutes)
	bound(limiters.Items.Properties["windows"], 1, weir.MaxWindows)
	describe(limiters.Items.Properties["penalty"], reflect.TypeFor[penalty]())
	bound(limiters.Items.Properties["exempt"], 0, MaxExceptions)
	bound(limiters.Items.Properties["overrides"], 0, MaxExceptions)
	out, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic(err) // as above
	}
	return append(out, '\n')
}

// typeSchemas returns the schemas of the document's types that need a pattern, a range or an enum.
func (r Reader) typeSchemas() map[reflect.Type]*jsonschema.Schema {
	minUnits, maxUnits := 1.0, float64(weir.MaxLimit)
	const span = `(0*[1-9][0-9]{0,6} +)?(second|minute|hour|day)s?`
	const rate = ` *0*[1-9][0-9]{0,9} +per +` + span
	const calendar = ` *0*[1-9][0-9]{0,9} +per +calendar +(day|week|month)`
	const zone = `( +in +[A-Z][A-Za-z0-9_+/-]{0,63})?( +from +day +0*[1-9][0-9]?)?`
	const callers = ` *([0-9A-Fa-f:.]+(/[0-9]{1,3})?|token +[A-Za-z0-9._-]{1,256}) *`
	source := sourcePattern(r.sources())
	part := source + `( +or +` + source + `)*`
	text := func(pattern string) *jsonschema.Schema {
		return &jsonschema.Schema{Type: "string", Pattern: "^" + pattern + "$", MaxLength: jsonschema.Ptr(MaxText)}
	}
	schemas := map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[name]():        text(`[a-z][a-z0-9-]{0,63}`),
		reflect.TypeFor[route]():       text(` *([A-Z]+ +)?/[^?#%\\;* ]*\*? *`),
		reflect.TypeFor[window]():      text(`(` + rate + `|` + calendar + zone + `) +by +` + part + `( *\+ *` + part + `)* *`),
		reflect.TypeFor[message]():     text(`[a-z][a-z0-9-]{0,63}`),
		reflect.TypeFor[units]():       {Type: "integer", Minimum: &minUnits, Maximum: &maxUnits},
		reflect.TypeFor[who]():         text(callers),
		reflect.TypeFor[override]():    text(`(` + rate + `|` + calendar + `) +for` + callers),
		reflect.TypeFor[refusals]():    text(` *0*[1-9][0-9]{0,9} +refusals? +per +` + span + ` *`),
		reflect.TypeFor[length]():      text(` *` + span + ` *`),
		reflect.TypeFor[requires]():    {Type: "string", Enum: enum(weir.Credentials()...)},
		reflect.TypeFor[mode]():        {Type: "string", Enum: enum("enforce", "shadow")},
		reflect.TypeFor[align]():       {Type: "string", Enum: enum("request", "clock")},
		reflect.TypeFor[failureMode](): {Type: "string", Enum: enum("local", "allow", "deny")},
	}
	if r.Messages != nil {
		schemas[reflect.TypeFor[message]()] = &jsonschema.Schema{Type: "string", Enum: enum(r.Messages...)}
	}
	return schemas
}

// sourcePattern matches each of the key sources.
func sourcePattern(all []weir.Source) string {
	patterns := make([]string, len(all))
	for i, s := range all {
		if patterns[i] = regexp.QuoteMeta(s.Name); s.Field != "" {
			patterns[i] += ":" + s.NamePattern()
		}
	}
	return "(" + strings.Join(patterns, "|") + ")"
}

func enum(words ...string) []any {
	all := make([]any, len(words))
	for i, w := range words {
		all[i] = w
	}
	return all
}

// bound makes s a list of minItems to maxItems items that cannot be null.
func bound(s *jsonschema.Schema, minItems, maxItems int) {
	s.Types, s.Type = nil, "array"
	s.MinItems, s.MaxItems = &minItems, &maxItems
}

// describe adds the examples that hints show to the fields of a type. It panics if a field has no
// description.
func describe(s *jsonschema.Schema, t reflect.Type) {
	for i := range t.NumField() {
		f := fieldOf(t, i)
		property := s.Properties[f.name]
		if property.Description == "" {
			panic(fmt.Sprintf("field %q has no description", f.name))
		}
		if property.Type == "string" {
			property.Examples = []any{f.like}
		}
	}
}
