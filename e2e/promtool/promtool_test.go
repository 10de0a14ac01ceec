package promtool

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const observability = "../../examples/observability/"

// promtool runs Debian's promtool, which has the checks of its Prometheus version.
func promtool(t *testing.T, stdin string, args ...string) {
	t.Helper()
	cmd := exec.Command("promtool", args...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestPromtoolAcceptsTheExample(t *testing.T) {
	dir := t.TempDir() // with a token, as in production
	for _, name := range []string{"prometheus.yml", "alerts.yml", "alerts_test.yml"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(read(t, observability+name)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "weir.token"), []byte("t"), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "", "check", "config", filepath.Join(dir, "prometheus.yml"))
	promtool(t, "", "check", "rules", filepath.Join(dir, "alerts.yml"))
	promtool(t, "", "test", "rules", filepath.Join(dir, "alerts_test.yml"))
}

// Every query of the dashboard is valid for promtool, and so for Prometheus.
func TestTheDashboardsQueriesAreValid(t *testing.T) {
	type rule struct{ Record, Expr string }
	var all []rule
	for _, p := range readPanels(t) {
		for i, target := range p.Targets {
			expr := strings.NewReplacer("$__rate_interval", "5m", "$instance", ".*").Replace(target.Expr)
			all = append(all, rule{fmt.Sprintf("r%d_%d", len(all), i), expr})
		}
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %q has no query", p.Title)
		}
	}
	if len(all) < 20 {
		t.Fatalf("the dashboard has %d queries", len(all))
	}
	b, err := json.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": lower(all, func(r rule) map[string]string {
		return map[string]string{"record": r.Record, "expr": r.Expr}
	})}}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "dashboard.yml") // JSON is YAML
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "", "check", "rules", path)
}

// A panel holds the parts of a Grafana panel that the tests use.
type panel struct {
	Title, Type string
	Targets     []struct{ Expr, LegendFormat string }
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func readPanels(t *testing.T) []panel {
	t.Helper()
	var d struct {
		Panels      []panel
		Annotations struct{ List []struct{ Name, Expr string } }
	}
	if err := json.Unmarshal([]byte(read(t, observability+"dashboard.json")), &d); err != nil {
		t.Fatal(err)
	}
	panels := d.Panels
	for _, a := range d.Annotations.List {
		panels = append(panels, panel{Title: a.Name, Targets: []struct{ Expr, LegendFormat string }{{Expr: a.Expr}}})
	}
	return panels
}

func lower[T, U any](all []T, to func(T) U) (out []U) {
	for _, one := range all {
		out = append(out, to(one))
	}
	return out
}
