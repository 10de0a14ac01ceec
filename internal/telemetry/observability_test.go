package telemetry_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"github.com/goccy/go-yaml"
)

var update = flag.Bool("update", false, "write the table of metrics in docs/operate.md anew")

const observability = "../../examples/observability/"

// rules holds the part of a rules file that the tests use.
type rules struct {
	Groups []struct {
		Rules []struct{ Alert, Expr string }
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func readRules(t *testing.T) rules {
	t.Helper()
	var r rules
	if err := yaml.Unmarshal([]byte(read(t, observability+"alerts.yml")), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Groups) != 1 || len(r.Groups[0].Rules) < 10 {
		t.Fatalf("alerts.yml has %d groups", len(r.Groups))
	}
	return r
}

// A panel holds the part of a Grafana panel that the tests use.
type panel struct {
	Title, Type string
	Targets     []struct{ Expr, LegendFormat string }
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

func TestEveryAlertHasACase(t *testing.T) {
	cases := read(t, observability+"alerts_test.yml")
	for _, r := range readRules(t).Groups[0].Rules {
		if strings.Count(cases, "{alertname: "+r.Alert+",") == 0 || strings.Count(cases, "alertname: "+r.Alert+"\n") == 0 {
			t.Errorf("alerts_test.yml does not test when %s fires and when it does not", r.Alert)
		}
	}
}

func lower[T, U any](all []T, to func(T) U) (out []U) {
	for _, one := range all {
		out = append(out, to(one))
	}
	return out
}

var (
	metricUsed   = regexp.MustCompile(`\b(weir_[a-z_]+)(?:\{([^}]*)\})?`)
	matcherUsed  = regexp.MustCompile(`([a-z_]+)\s*(=~|!~|!=|=)\s*"([^"]*)"`)
	groupedBy    = regexp.MustCompile(`\bby \(([^)]*)\)`)
	legendLabels = regexp.MustCompile(`\{\{\s*(?:\$labels\.)?([a-z_]+)\s*\}\}`)
)

// ofTarget are the labels that Prometheus adds to every target.
var ofTarget = []string{"instance", "job"}

// checkQuery reports the names, labels and label values in a query that no scrape has.
func checkQuery(t *testing.T, where, expr string, real map[string]*dto.MetricFamily) {
	t.Helper()
	labels := slices.Clone(ofTarget)
	for _, used := range metricUsed.FindAllStringSubmatch(expr, -1) {
		f, name := real[used[1]], used[1]
		if f == nil {
			bare := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count"), "_sum")
			if f = real[bare]; f == nil || f.GetType() != dto.MetricType_HISTOGRAM {
				t.Errorf("%s asks for %s, which is not among the metrics", where, name)
				continue
			}
			labels = append(labels, "le")
		}
		values := map[string][]string{}
		for _, m := range f.Metric {
			for _, l := range m.Label {
				values[l.GetName()] = append(values[l.GetName()], l.GetValue())
			}
		}
		for name := range values {
			labels = append(labels, name)
		}
		for _, m := range matcherUsed.FindAllStringSubmatch(used[2], -1) {
			label, value := m[1], m[3]
			if slices.Contains(ofTarget, label) {
				continue
			}
			if values[label] == nil {
				t.Errorf("%s asks for the label %s of %s, which has none", where, label, used[1])
			}
			for one := range strings.SplitSeq(value, "|") {
				if one != "" && !slices.Contains(values[label], one) {
					t.Errorf("%s asks for %s with %s=%q, which never is", where, used[1], label, one)
				}
			}
		}
	}
	for _, by := range groupedBy.FindAllStringSubmatch(expr, -1) {
		for label := range strings.SplitSeq(by[1], ",") {
			if !slices.Contains(labels, strings.TrimSpace(label)) {
				t.Errorf("%s groups by %s, which nothing in it has", where, label)
			}
		}
	}
}

func TestRulesAndPanelsAskForWhatThereIs(t *testing.T) {
	m, _ := everything(t)
	real := gather(t, m)
	asked := ""
	for _, r := range readRules(t).Groups[0].Rules {
		checkQuery(t, "alert "+r.Alert, r.Expr, real)
		asked += r.Expr
	}
	for _, p := range readPanels(t) {
		for _, target := range p.Targets {
			checkQuery(t, "panel "+p.Title, target.Expr, real)
			asked += target.Expr
			by := strings.Join(lower(groupedBy.FindAllStringSubmatch(target.Expr, -1), func(s []string) string { return s[1] }), ",")
			for _, l := range legendLabels.FindAllStringSubmatch(target.LegendFormat, -1) {
				if by != "" && !strings.Contains(by, l[1]) {
					t.Errorf("the legend of panel %q names %s, which %q has grouped away", p.Title, l[1], target.Expr)
				}
			}
		}
	}
	for name := range real { // a metric that is not queried need not exist
		if strings.HasPrefix(name, "weir_") && !strings.Contains(asked, name) && !slices.Contains(unasked, name) {
			t.Errorf("neither an alert nor a panel asks for %s", name)
		}
	}
}

// unasked lists the metrics that no alert and no panel queries.
var unasked = []string{"weir_build_info", "weir_store_outages_total", "weir_store_outage_seconds_total", "weir_store_local_decisions_total",
	"weir_policy_last_reload_timestamp_seconds", "weir_candidate_loaded_timestamp_seconds", "weir_candidate_last_reload_timestamp_seconds"}

const (
	tableBegins = "<!-- metrics: go test ./internal/telemetry -run TestTheTableOfMetrics -update -->\n"
	tableEnds   = "<!-- end of metrics -->\n"
)

func TestTheTableOfMetricsIsThatOfTheRegistry(t *testing.T) {
	const path = "../../docs/operate.md"
	m, _ := everything(t)
	families, err := m.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	table := "| metric | kind | labels | meaning |\n|---|---|---|---|\n"
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "weir_") {
			continue
		}
		labels := lower(f.Metric[0].Label, func(l *dto.LabelPair) string { return "`" + l.GetName() + "`" })
		table += fmt.Sprintf("| `%s` | %s | %s | %s |\n", f.GetName(), strings.ToLower(f.GetType().String()), strings.Join(labels, ", "), f.GetHelp())
	}
	page := read(t, path)
	before, rest, ok := strings.Cut(page, tableBegins)
	old, after, ends := strings.Cut(rest, tableEnds)
	if !ok || !ends {
		t.Fatalf("%s has no place for the table of metrics", path)
	}
	if old == table {
		return
	}
	if !*update {
		t.Fatalf("the table in %s is not that of the registry, which is (-update writes it):\n%s", path, table)
	}
	if err := os.WriteFile(path, []byte(before+tableBegins+table+tableEnds+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
