package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite what docs has of the program: schemas, and the pages of the commands")

// Editors use the files in docs; they match this version's types, messages and flags.
func TestTheSchemasInTheDocsAreCurrent(t *testing.T) {
	for path, want := range map[string][]byte{
		"../../docs/policy.schema.json": policyReader().Schema(),
		"../../docs/serve.schema.json":  configSchema(),
	} {
		if *update {
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is another version's: go test ./cmd/weir -run Schema -update", path)
		}
	}
}

// decided are the flags that the chart for Kubernetes sets by itself.
var decided = []string{"listen", "metrics", "metrics-open", "data", "policy", "drain-notice", "drain-timeout", "tls-cert", "tls-key", "config", "store"}

// The chart renders nothing for a setting that is no flag: a pod would start with it and end at
// once.
func TestTheSettingsOfTheChartAreTheFlags(t *testing.T) {
	const path = "../../charts/weir/values.schema.json"
	var schema struct{ Properties map[string]any }
	if err := json.Unmarshal(configSchema(), &schema); err != nil {
		t.Fatal(err)
	}
	var names []string
	for name := range schema.Properties {
		if !slices.Contains(decided, name) {
			names = append(names, `"`+name+`"`)
		}
	}
	slices.Sort(names)
	var want strings.Builder
	want.WriteString(`"propertyNames": {"enum": [`)
	for line := range slices.Chunk(names, 6) {
		if want.Len() > 30 {
			want.WriteString(",")
		}
		want.WriteString("\n        " + strings.Join(line, ", "))
	}
	want.WriteString("\n      ]}")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(text, []byte(want.String())) {
		return
	}
	if !*update {
		t.Fatalf("%s does not have the flags of this version: go test ./cmd/weir -run Settings -update", path)
	}
	place := regexp.MustCompile(`"propertyNames": \{"(?:not|enum)": .*(?:\n        .*)*(?:\n      \]\})?`)
	at := place.FindIndex(text)
	if at == nil {
		t.Fatalf("%s has no propertyNames", path)
	}
	if err := os.WriteFile(path, slices.Concat(text[:at[0]], []byte(want.String()), text[at[1]:]), 0o644); err != nil {
		t.Fatal(err)
	}
}
