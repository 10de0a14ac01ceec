package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestATagIsTheVersionOfTheChangelogAndOfTheChart(t *testing.T) {
	const chart = "version: 0.2.0\nappVersion: 0.2.0\n"
	for _, c := range []struct{ what, changelog, chart, version, want string }{
		{"a release", "# Changelog\n\n## 0.2.0 (2026-12-01)\n\n- a\n\n## 0.1.0 (2026-11-27)\n", chart, "v0.2.0", ""},
		{"a candidate", "## Unreleased\n", "version: 0.1.0\n", "v0.2.0-rc1", ""},
		{"a commit", "## Unreleased\n", "version: 0.1.0\n", "v0.0.0-20261127190416-1ef3516d90b1", ""},
		{"changes that are in no version", "## Unreleased\n\n- b\n\n## 0.2.0 (2026-12-01)\n", chart, "v0.2.0", `CHANGELOG.md has "Unreleased"`},
		{"no date", "## 0.2.0\n", chart, "v0.2.0", `CHANGELOG.md has "0.2.0"`},
		{"no section", "# Changelog\n", chart, "v0.2.0", "CHANGELOG.md has no version"},
		{"the chart of the last release", "## 0.2.0 (2026-12-01)\n", "version: 0.2.0\nappVersion: 0.1.0\n", "v0.2.0", `Chart.yaml has "0.1.0"`},
	} {
		dir := t.TempDir()
		for name, text := range map[string]string{"CHANGELOG.md": c.changelog, "charts/weir/Chart.yaml": c.chart} {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		v, err := parseVersion(c.version)
		if err != nil {
			t.Fatal(err)
		}
		err = checkTag(dir, v)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: the error is %v, want %q", c.what, err, c.want)
		}
	}
}
