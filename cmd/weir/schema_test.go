package main

import (
	"bytes"
	"flag"
	"os"
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
