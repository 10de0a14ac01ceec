package main

import (
	"bytes"
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "rewrite docs/policy.schema.json")

// Editors use the file in docs; it matches this version's types and messages.
func TestTheSchemaInTheDocsIsCurrent(t *testing.T) {
	const path = "../../docs/policy.schema.json"
	want := policyReader().Schema()
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
		t.Error("docs/policy.schema.json is another version's: go test ./cmd/weir -run Schema -update")
	}
}
