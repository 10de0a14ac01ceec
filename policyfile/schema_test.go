package policyfile_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/jsonschema-go/jsonschema"

	"github.com/weirlimit/weir/policyfile"
)

// beyondSchema lists the mistakes in testdata/bad that a JSON Schema cannot detect, with the
// reason.
var beyondSchema = map[string]string{
	"anchor-and-alias":           "the parser resolves them before the schema is applied",
	"cost-above-limit":           "two fields compared",
	"cost-not-plain":             "spelling; the schema rejects those that are not numbers",
	"document-end":               "spelling, not data",
	"duplicate-name":             "two limiters compared",
	"equal-windows":              "two windows compared",
	"expensive-override":         "two fields compared",
	"plans-lengths":              "rates and windows compared",
	"everyone-not-alone":         "the parts of a key compared",
	"never-reached":              "the alternatives of a key compared",
	"source-twice":               "the parts and the alternatives of a key compared",
	"penalty-of-all":             "two fields compared",
	"merge-key":                  "the parser resolves it before the schema is applied",
	"settle-reserve-above-limit": "two fields compared",
	"several-documents":          "the schema is applied to the first document only",
	"tag":                        "spelling, not data",
	"text-over-lines":            "spelling, not data",
	"too-many-routes":            "counted over all limiters",
	"unreachable-route":          "two routes compared",
	"invisible-character":        "bytes, not data",
	"duplicate-key":              "the parser refuses it before the schema is applied",
}

func resolved(t *testing.T, source []byte) *jsonschema.Resolved {
	t.Helper()
	var s jsonschema.Schema
	if err := json.Unmarshal(source, &s); err != nil {
		t.Fatal(err)
	}
	r, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// data returns a file's content as a JSON value. It is false if the file is not YAML.
func data(t *testing.T, path string) (value any, ok bool) {
	t.Helper()
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	asJSON, err := yaml.YAMLToJSON(source)
	if err != nil || json.Unmarshal(asJSON, &value) != nil {
		return nil, false
	}
	return value, true
}

func TestTheSchemaAcceptsEveryGoodFile(t *testing.T) {
	schema := resolved(t, reader.Schema())
	for _, path := range append(files(t, "testdata/good", 8), files(t, "../examples/policies", 3)...) {
		value, ok := data(t, path)
		if !ok {
			t.Errorf("%s is not YAML", path)
			continue
		}
		if err := schema.Validate(value); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestTheSchemaRefusesEveryMistakeThatItCanSee(t *testing.T) {
	schema := resolved(t, reader.Schema())
	seen := 0
	for _, path := range files(t, "testdata/bad", 60) {
		name := strings.TrimSuffix(filepath.Base(path), ".yaml")
		value, ok := data(t, path)
		if !ok {
			continue // an editor reports it without a schema
		}
		err := schema.Validate(value)
		why, beyond := beyondSchema[name]
		switch {
		case beyond && err != nil:
			t.Errorf("%s: the schema detects it (%v), but beyondSchema lists it (%s)", path, err, why)
		case !beyond && err == nil:
			t.Errorf("%s: the schema accepts it", path)
		case !beyond:
			seen++
		}
	}
	if seen < 20 {
		t.Errorf("only %d mistakes were shown to the schema", seen)
	}
}

func TestTheSchemaHelpsAnEditor(t *testing.T) {
	schema := resolved(t, policyfile.Schema()).Schema()
	limiter := schema.Properties["limiters"].Items
	if got := slices.Sorted(maps.Keys(limiter.Properties)); !slices.Equal(got, []string{"align", "answers", "chosen", "cost", "count", "deny", "exempt", "in_flight", "message", "mode", "name", "notify", "on_store_failure", "overrides", "penalty", "plans", "requires", "routes", "windows"}) {
		t.Errorf("fields: %v", got)
	}
	if !slices.Equal(limiter.Required, []string{"name"}) || len(limiter.AnyOf) != 2 {
		t.Errorf("required: %v, and one of %v", limiter.Required, limiter.AnyOf)
	}
	for name, field := range limiter.Properties {
		if field.Description == "" {
			t.Errorf("%s has no description", name)
		}
	}
	if got := limiter.Properties["on_store_failure"].Enum; !slices.Equal(got, []any{"local", "allow", "deny", "pocket or local", "pocket or allow", "pocket or deny", "pocket"}) {
		t.Errorf("on_store_failure: %v", got)
	}
	if got := schema.Properties["messages"].AdditionalProperties.Required; !slices.Equal(got, []string{"en"}) {
		t.Errorf("required languages: %v", got)
	}
	if got := schema.Properties["answers"].Properties["refused"].Properties["status"].Enum; !slices.Equal(got, []any{403.0, 429.0, 503.0}) {
		t.Errorf("statuses of a refusal: %v", got)
	}
}

func TestTheSchemaIsTheSameEachTime(t *testing.T) {
	first := string(policyfile.Schema())
	for range 20 {
		if string(policyfile.Schema()) != first {
			t.Fatal("two calls differ: the file in docs would change without a reason")
		}
	}
}

func TestTheSchemaAcceptsTheHostsThatParseAccepts(t *testing.T) {
	schema := resolved(t, policyfile.Schema())
	for _, route := range []string{
		"api.example.com/*", "GET api.example.com./x", "*.example.com/x", "*.lan/x", "API.Example.com/x", "localhost/x", "intranet./x",
		"192.0.2.7/x", "[2001:db8::1]/x", "bücher.example/x", "*.bücher.example/x", "例え。テスト/x", "a_b.example/x",
		"api/x", "https://api.example.com/x", "api.example.com:8443/x", "[2001:db8::1]:80/x", "*example.com/x", "*.*.example.com/x", "*/x",
		"user@example.com/x", "api.example.com", "*.[2001:db8::1]/x", "LOCALHOST/x",
	} {
		policy := map[string]any{"limiters": []any{map[string]any{"name": "a", "routes": []any{route}, "windows": []any{"9 per minute by ip"}}}}
		source, err := json.Marshal(policy)
		if err != nil {
			t.Fatal(err)
		}
		_, parsed := policyfile.Parse("p", source)
		if validated := schema.Validate(policy); (parsed == nil) != (validated == nil) {
			t.Errorf("%s: Parse says %v, the schema says %v", route, parsed, validated)
		}
	}
}
