//go:build !race

// One goroutine reads files: the race detector would only make that slow.

package main

import (
	"slices"
	"strings"
	"testing"
)

func TestTheMiddlewareCompilesNoPolicyFileAndNoServer(t *testing.T) {
	heavy := []string{module + "/policyfile", module + "/redisstore", module + "/failover", "github.com/goccy/", "github.com/redis/",
		"github.com/prometheus/", "go.opentelemetry.io/", "google.golang.org/", "modernc.org/", "github.com/spf13/"}
	for _, p := range packages(t) {
		if p.name() != "httplimit" {
			continue
		}
		if !slices.Contains(p.Deps, module+"/memstore") {
			t.Errorf("%s does not depend on memstore: the list of its dependencies is not what it was", p.ImportPath)
		}
		for _, dependency := range p.Deps {
			if slices.ContainsFunc(heavy, func(h string) bool { return strings.HasPrefix(dependency, h) }) {
				t.Errorf("%s depends on %s: a service with one line of httplimit.Limit compiles no YAML, no database and no server", p.ImportPath, dependency)
			}
		}
	}
}
