package weir

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/weirlimit/weir/internal/openapitest"
)

// The documented bounds of each field, parameter and body are enforced to the byte.
// The smallest and largest values are accepted. A value just beyond a bound,
// another type, or a missing required value is refused.
func TestEveryDocumentedBoundIsEnforced(t *testing.T) {
	k := newHarness(t, 1)
	probes := 0
	for _, o := range k.operations {
		for _, p := range k.probesOf(o) {
			k.try(o, p)
			probes++
		}
	}
	t.Logf("%d probes", probes)
	if probes < 500 {
		t.Errorf("%d probes are few: it looked in the wrong place", probes)
	}
}

// A probe replaces one value in a valid request.
type probe struct {
	name    string
	body    []byte
	query   string
	refused []int // one of these statuses; if empty, any but these and 400, 413, 422
}

var (
	bad      = []int{http.StatusBadRequest, http.StatusUnprocessableEntity}
	tooLarge = []int{http.StatusRequestEntityTooLarge}
)

func (k *harness) try(o operation, p probe) {
	v := k.callers[0]
	d := draft{method: o.method, path: o.path, query: p.query, body: p.body, header: http.Header{}}
	d.path = strings.ReplaceAll(d.path, "{id}", v.conversations[0])
	if len(p.body) > 0 {
		d.header.Set("Content-Type", "application/json")
	}
	switch o.needs() {
	case "session":
		d.header.Set("Authorization", "Bearer "+v.token)
	case "token":
		d.header.Set("Authorization", "Bearer "+k.tokens[0])
	default:
		d.header.Set("X-Agent-Id", "demo")
	}
	status := k.send(v, d)
	switch refused := slices.Contains(bad, status) || slices.Contains(tooLarge, status); {
	case len(p.refused) == 0 && refused:
		k.Errorf("%s: described as allowed, and answered %d: %v", p.name, status, d)
	case len(p.refused) > 0 && !slices.Contains(p.refused, status):
		k.Errorf("%s: described as not allowed, and answered %d: %v", p.name, status, d)
	}
}

func (k *harness) probesOf(o operation) []probe {
	name := o.method + " " + o.path
	var all []probe
	for _, p := range o.parameters() {
		if p.In != openapi3.ParameterInQuery || !p.Schema.Value.Type.Is(openapi3.TypeInteger) {
			continue
		}
		for _, c := range k.integers(p.Schema.Value) {
			all = append(all, probe{name + " " + p.Name, nil, p.Name + "=" + fmt.Sprint(c.value), c.refused})
		}
		all = append(all, probe{name + " " + p.Name, nil, p.Name + "=x", bad}, probe{name + " " + p.Name, nil, p.Name + "=", nil})
	}
	if o.RequestBody == nil {
		return all
	}
	content := o.RequestBody.Value.Content["application/json"]
	example, most := text(content.Example), int(o.RequestBody.Value.Extensions[openapitest.MaxBytes].(float64))
	pad := func(n int) []byte { return append(slices.Clone(example), strings.Repeat(" ", n-len(example))...) }
	all = append(all, probe{name + ": as the example", example, "", nil}, probe{name + ": longest", pad(most), "", nil}, probe{name + ": longer", pad(most + 1), "", tooLarge})

	schema, at := content.Schema.Value, ""
	all = append(all, k.fields(name, at, schema, example)...)
	if items := schema.Properties["items"]; items != nil {
		all = append(all, k.fields(name, "items", items.Value.Items.Value, example)...)
	}
	return all
}

// A bounded is a value, and the statuses that refuse it.
type bounded struct {
	value   any
	refused []int
}

// absent means a missing field.
type absent struct{}

// fields probes each field of the body, or of its first item.
func (k *harness) fields(name, at string, schema *openapi3.Schema, example []byte) []probe {
	var all []probe
	add := func(field string, c bounded) {
		var body map[string]any
		decoder := json.NewDecoder(bytes.NewReader(example))
		if err := decoder.Decode(&body); err != nil {
			k.Fatal(err)
		}
		object := body
		if at != "" {
			object, _ = body[at].([]any)[0].(map[string]any)
		}
		if field == "amount" { // one of the two is required
			delete(object, "percent")
		}
		// Its counterpart for an amount of money.
		if field == "currency" && schema.Properties["minimum"] != nil {
			object["minimum"] = 1
		}
		if object[field] = c.value; c.value == (absent{}) {
			delete(object, field)
		}
		all = append(all, probe{fmt.Sprintf("%s %s %s", name, at, field), text(body), "", c.refused})
	}
	add("surprise", bounded{1, bad})
	for _, field := range sorted(schema.Properties) {
		p := schema.Properties[field].Value
		missing := bounded{nil, nil}
		if slices.Contains(schema.Required, field) {
			missing.refused = bad
		}
		if field != "percent" && field != "amount" { // one of these is required
			add(field, missing)
			add(field, bounded{absent{}, missing.refused})
		}
		for _, c := range k.values(field, p) {
			add(field, c)
		}
	}
	return all
}

// values are those at the bounds of a field, and those of other types.
func (k *harness) values(field string, s *openapi3.Schema) []bounded {
	var all []bounded
	for kind, value := range map[string]any{
		openapi3.TypeBoolean: true, openapi3.TypeNumber: 1.5, openapi3.TypeString: "\u0000", openapi3.TypeArray: []any{1}, openapi3.TypeObject: map[string]any{"a": 1},
	} {
		if !s.Type.Includes(kind) {
			all = append(all, bounded{value, bad})
		}
	}
	switch {
	case s.Type.Includes(openapi3.TypeInteger):
		return append(all, k.integers(s)...)
	case s.Type.Includes(openapi3.TypeString):
		return append(all, k.strings(field, s)...)
	case field == "data":
		wide := map[string]any{}
		for i := range 64 {
			wide[strconv.Itoa(i)] = i
		}
		wider := maps.Clone(wide)
		wider["one more"] = nil
		return append(all, bounded{wide, nil}, bounded{wider, bad},
			bounded{map[string]any{"a": k.letters(4096 - len(`{"a":""}`))}, nil}, bounded{map[string]any{"a": k.letters(4097 - len(`{"a":""}`))}, bad})
	case s.Type.Includes(openapi3.TypeArray):
		return append(all, bounded{[]any{}, nil}, bounded{make([]any, int(*s.MaxItems)+1), bad})
	}
	return all
}

func (k *harness) integers(s *openapi3.Schema) []bounded {
	all := []bounded{{json.Number("1e2"), bad}, {json.Number("99999999999999999999"), bad}}
	if s.Min != nil {
		all = append(all, bounded{int64(*s.Min), nil}, bounded{int64(*s.Min) - 1, bad})
	}
	if s.Max != nil {
		all = append(all, bounded{int64(*s.Max), nil}, bounded{int64(*s.Max) + 1, bad})
	}
	return all
}

// strings are the shortest and longest values of a field, in bytes, and those with
// forbidden characters.
func (k *harness) strings(field string, s *openapi3.Schema) []bounded {
	if s.Format == "date-time" {
		return []bounded{{"2025-12-31T23:59:59+05:30", nil}, {"2025-12-31", bad}, {"2025-12-31T23:59:59", bad}, {"tomorrow", bad}}
	}
	most := int(*s.MaxLength)
	long := func(n int) string { return k.letters(n) }
	free := false // any text is allowed
	switch field {
	case "url":
		long = func(n int) string { return "https://example.org/" + k.letters(n-len("https://example.org/")) }
	case "email":
		long = func(n int) string { return k.letters(n-len("@example.org")) + "@example.org" }
	case "currency":
		long = func(n int) string { return strings.Repeat("E", n) }
	default:
		free = strings.Contains(s.Pattern, "{Cc}")
	}
	all := []bounded{{long(most), nil}, {long(most + 1), bad}, {"a\u0000b", bad}, {"a\u0085b", bad}}
	if s.MinLength > 0 {
		all = append(all, bounded{"", bad}, bounded{" \u00a0", bad})
	} else {
		all = append(all, bounded{"", nil})
	}
	if !free {
		return append(all, bounded{"é €", bad}, bounded{"a\nb", bad})
	}
	all = append(all, bounded{strings.Repeat("é", most/2), nil}, bounded{strings.Repeat("é", most/2+1), bad}, bounded{"👋 e\u0301", nil})
	if strings.Contains(s.Pattern, `\n`) {
		return append(all, bounded{"a\n\tb", nil})
	}
	return append(all, bounded{"a\nb", bad}, bounded{"a\u2028b", bad})
}

// JSON Schema has no length in bytes. If a bound is in bytes, the description
// contains its number, too.
func TestBoundsInBytesAreInTheDescription(t *testing.T) {
	d, err := described()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range operationsOf(d) {
		if o.RequestBody == nil {
			continue
		}
		schema := o.RequestBody.Value.Content["application/json"].Schema.Value
		if items := schema.Properties["items"]; items != nil {
			schema = items.Value.Items.Value
		}
		for field, p := range schema.Properties {
			if s := p.Value; s.MaxLength != nil && strings.Contains(s.Pattern, "{Cc}") && !strings.Contains(s.Description, strconv.FormatUint(*s.MaxLength, 10)+" bytes") && field != "conversation_id" {
				t.Errorf("%s %s: the description of %s has no maximum of %d bytes", o.method, o.path, field, *s.MaxLength)
			}
		}
	}
}
