package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"
)

// writeSBOM writes what the program is made of, in CycloneDX 1.6: the modules that Go recorded in
// the program itself. A scanner such as syft reads the same record, and takes many modules to
// build.
func writeSBOM(p program, out string) error {
	content, err := os.ReadFile(p.Path)
	if err != nil {
		return err
	}
	main := component{
		Type: "application", Ref: "weir", Name: "weir", Version: p.Version.String(), PURL: purl(&p.Info.Main),
		Hashes:   []hash{{"SHA-256", fmt.Sprintf("%x", sha256.Sum256(content))}},
		Licenses: []license{{Expression: "Apache-2.0"}},
	}
	b := bom{
		Format: "CycloneDX", Spec: "1.6", Version: 1,
		Metadata: metadata{Timestamp: p.Date.UTC().Format(time.RFC3339), Component: main},
	}
	edges := dependency{Ref: main.Ref}
	add := func(c component) {
		b.Components = append(b.Components, c)
		edges.DependsOn = append(edges.DependsOn, c.Ref)
	}
	goVersion := strings.TrimPrefix(p.Info.GoVersion, "go")
	add(component{Type: "library", Ref: "stdlib", Name: "stdlib", Version: p.Info.GoVersion, PURL: "pkg:golang/stdlib@" + goVersion})
	for _, m := range p.Info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		add(component{Type: "library", Ref: m.Path, Name: m.Path, Version: m.Version, PURL: purl(m)})
	}
	b.Dependencies = []dependency{edges}
	text, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, p.name()+".cdx.json"), append(text, '\n'), 0o644)
}

func purl(m *debug.Module) string { return "pkg:golang/" + m.Path + "@" + m.Version }

// From here on: the part of CycloneDX 1.6 that is used.

type bom struct {
	Format       string       `json:"bomFormat"`
	Spec         string       `json:"specVersion"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Timestamp string    `json:"timestamp"`
	Component component `json:"component"`
}

type component struct {
	Type     string    `json:"type"`
	Ref      string    `json:"bom-ref"`
	Name     string    `json:"name"`
	Version  string    `json:"version"`
	Hashes   []hash    `json:"hashes,omitempty"`
	Licenses []license `json:"licenses,omitempty"`
	PURL     string    `json:"purl"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type license struct {
	Expression string `json:"expression"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn"`
}
