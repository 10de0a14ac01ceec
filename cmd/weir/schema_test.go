package main

import (
	"bytes"
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write docs/policy.schema.json anew")

// Editors are given a file; it is the one that this version's types and messages make.
func TestTheSchemaInTheDocsIsThisVersions(t *testing.T) {
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
