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
	bound(limiters.Items.Properties["windows"], 0, weir.MaxWindows)
	limiters.Items.AnyOf = windowsOrInFlight()
	describe(limiters.Items.Properties["penalty"], reflect.TypeFor[penalty]())
	describeCount(limiters.Items.Properties["count"])
	bound(limiters.Items.Properties["exempt"], 0, MaxExceptions)
	bound(limiters.Items.Properties["deny"], 0, MaxExceptions)
	bound(limiters.Items.Properties["overrides"], 0, MaxExceptions)
	describeResponses(s)
	bound(limiters.Items.Properties["notify"], 1, weir.MaxNotify)
	limiters.Items.Properties["notify"].UniqueItems = true
	out, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic(err) // as above
	}
	return append(out, '\n')
}

// typeSchemas returns the schemas of the document's types that need a pattern, a range or an enum.
func (r Reader) typeSchemas() map[reflect.Type]*jsonschema.Schema {
	minUnits, maxUnits, maxPercent := 1.0, float64(weir.MaxLimit), 100.0
	const span = `(0*[1-9][0-9]{0,6} +)?(second|minute|hour|day)s?`
	const rate = ` *0*[1-9][0-9]{0,9} +(requests? +)?per +` + span
	const calendar = ` *0*[1-9][0-9]{0,9} +(requests? +)?per +calendar +(day|week|month)`
	const zone = `( +in +[A-Z][A-Za-z0-9_+/-]{0,63})?( +from +day +0*[1-9][0-9]?)?`
	const callers = ` *([0-9A-Fa-f:.]+(/[0-9]{1,3})?|@[^ ](.*[^ ])?|token +[A-Za-z0-9._-]{1,256}) *`
	const dot, letters = `[.。．｡]`, `([A-Za-z0-9_-]|[^\x00-\x7f。．｡])+`
	const host = `(localhost|\*\.` + letters + `(` + dot + letters + `)*` + dot + `?|` +
		letters + `(` + dot + letters + `)*` + dot + `(` + letters + `)?|\[[0-9A-Fa-f:.]+\])`
	source := sourcePattern(r.sources())
	part := source + `( +or +` + source + `)*`
	key := ` +by +` + part + `( *\+ *` + part + `)* *`
	matching := func(pattern string) *jsonschema.Schema {
		return &jsonschema.Schema{Type: "string", Pattern: "^" + pattern + "$", MaxLength: jsonschema.Ptr(MaxText)}
	}
	schemas := map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[name]():        matching(`[a-z][a-z0-9-]{0,63}`),
		reflect.TypeFor[route]():       matching(` *([A-Z]+ +)?` + host + `?/([^?#%\\;* {}]|\{[a-z][a-z0-9_-]{0,63}\})*\*? *`),
		reflect.TypeFor[window]():      matching(`(` + rate + `|` + calendar + zone + `)` + key),
		reflect.TypeFor[inFlight]():    matching(` *0*[1-9][0-9]{0,9}` + key),
		reflect.TypeFor[message]():     matching(`[a-z][a-z0-9-]{0,63}`),
		reflect.TypeFor[units]():       {Type: "integer", Minimum: &minUnits, Maximum: &maxUnits},
		reflect.TypeFor[who]():         matching(callers),
		reflect.TypeFor[override]():    matching(`(` + rate + `|` + calendar + `) +for` + callers),
		reflect.TypeFor[plans]():       plansSchema(matching, `(`+rate+`|`+calendar+`) *`),
		reflect.TypeFor[refusals]():    matching(` *0*[1-9][0-9]{0,9} +refusals? +per +` + span + ` *`),
		reflect.TypeFor[length]():      matching(` *` + span + ` *`),
		reflect.TypeFor[requires]():    {Type: "string", Enum: enum(weir.Credentials()...)},
		reflect.TypeFor[yes]():         {Type: "string", Enum: enum("yes")},
		reflect.TypeFor[mode]():        {Type: "string", Enum: enum("enforce", "shadow")},
		reflect.TypeFor[answered]():    {Type: "string", Enum: enum("usage")},
		reflect.TypeFor[percent]():     {Type: "integer", Minimum: &minUnits, Maximum: &maxPercent},
		reflect.TypeFor[align]():       {Type: "string", Enum: enum("request", "clock")},
		reflect.TypeFor[failureMode](): {Type: "string", Enum: enum(failureModes()...)},
		reflect.TypeFor[format]():      {Type: "string", Enum: enum("error", "problem")},
		reflect.TypeFor[status]():      {Type: "integer"},
		reflect.TypeFor[text]():        matching(`[^\x00-\x1f\x7f]*[^\x00-\x20\x7f][^\x00-\x1f\x7f]*`),
		reflect.TypeFor[value]():       matching(`[!-~]([ -~]*[!-~])?`),
	}
	addSettling(schemas, matching)
	return schemas
}

// describeResponses completes the schema of the responses of a policy.
func describeResponses(s *jsonschema.Schema) {
	messages, all := s.Properties["messages"], s.Properties["answers"]
	named(messages, `[a-z][a-z0-9-]{0,63}`, weir.MaxMessages)
	named(messages.AdditionalProperties, `[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*`, weir.MaxLanguages)
	messages.AdditionalProperties.Required = []string{weir.English}
	describe(all, reflect.TypeFor[answers]())
	for field, statuses := range map[string][]any{"refused": {403, 429, 503}, "unauthenticated": {401, 403, 404}, "unavailable": {500, 502, 503, 504}} {
		one, kind := all.Properties[field], reflect.TypeFor[answer]()
		if field == "unauthenticated" {
			kind = reflect.TypeFor[unauthenticated]()
			named(one.Properties["credentials"], "("+strings.Join(weir.Credentials(), "|")+")", len(weir.Credentials()))
		}
		describe(one, kind)
		one.Properties["status"].Enum = statuses
		named(one.Properties["fields"], `[A-Za-z0-9-]{1,64}`, weir.MaxFields)
	}
}

// named makes s a mapping that is not null, of at most maxEntries names that match a pattern.
func named(s *jsonschema.Schema, pattern string, maxEntries int) {
	s.Types, s.Type = nil, "object"
	s.PropertyNames = &jsonschema.Schema{Pattern: "^" + pattern + "$"}
	s.MaxProperties = &maxEntries
}

// plansSchema returns the schema of a mapping with by and a key for each plan. rate matches a rate.
func plansSchema(text func(pattern string) *jsonschema.Schema, rate string) *jsonschema.Schema {
	s := &jsonschema.Schema{
		Type:          "object",
		Properties:    map[string]*jsonschema.Schema{planBy: text(sourcePattern([]weir.Source{weir.SourceOf("token"), weir.SourceOf("claim:plan"), weir.SourceOf("header:X-Plan")}))},
		Required:      []string{planBy},
		MinProperties: jsonschema.Ptr(2),
		MaxProperties: jsonschema.Ptr(weir.MaxPlans + 1),
		PropertyNames: &jsonschema.Schema{Pattern: `^[A-Za-z0-9._-]{1,64}$`},
	}
	list := &jsonschema.Schema{Items: text(rate)}
	bound(list, 1, weir.MaxWindows)
	s.AdditionalProperties = &jsonschema.Schema{AnyOf: []*jsonschema.Schema{text(rate), list}}
	return s
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
