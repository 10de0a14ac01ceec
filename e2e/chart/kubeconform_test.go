package chart

import (
	"encoding/json"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/yannh/kubeconform/pkg/validator"
)

// kubernetes is the release whose schemas manifests are compared with.
const kubernetes = "k8s.io/kubernetes@v1.34.2"

// schemas writes the strict schemas of Kubernetes' types into a directory, by their kind, and
// returns the directory. They come from the description of its API that is part of its module.
func schemas(t *testing.T) string {
	t.Helper()
	download := exec.Command("go", "mod", "download", "-json", kubernetes)
	download.Dir = t.TempDir() // it cannot be a requirement of a module outside of Kubernetes
	out, err := download.Output()
	var module struct{ Dir, Error string }
	if json.Unmarshal(out, &module) != nil || module.Dir == "" {
		t.Fatalf("go mod download %s: %v %s", kubernetes, err, module.Error)
	}
	text, err := os.ReadFile(filepath.Join(module.Dir, "api", "openapi-spec", "swagger.json"))
	if err != nil {
		t.Fatal(err)
	}
	var api struct {
		Definitions map[string]map[string]any `json:"definitions"`
	}
	if err := json.Unmarshal(text, &api); err != nil {
		t.Fatal(err)
	}
	for _, d := range api.Definitions {
		if d["properties"] != nil && d["additionalProperties"] == nil {
			d["additionalProperties"] = false
		}
		if d["format"] == "int-or-string" {
			delete(d, "format")
			d["type"] = []string{"integer", "string"}
		}
	}
	directory := t.TempDir()
	for _, d := range api.Definitions {
		kinds, _ := d["x-kubernetes-group-version-kind"].([]any)
		if len(kinds) != 1 {
			continue // a part of many kinds
		}
		kind := kinds[0].(map[string]any)
		if typed(kind["kind"].(string)) == nil {
			continue
		}
		parts := []string{strings.ToLower(kind["kind"].(string)), kind["version"].(string)}
		if group, _, _ := strings.Cut(kind["group"].(string), "."); group != "" {
			parts = []string{parts[0], group, parts[1]}
		}
		schema := maps.Clone(d)
		schema["definitions"] = api.Definitions
		text, err := json.Marshal(schema)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(directory, strings.Join(parts, "-")+".json"), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return directory
}

func TestKubeconformFindsNoFault(t *testing.T) {
	other := map[string]struct{}{"ServiceMonitor": {}} // not of Kubernetes: see typed
	v, err := validator.New([]string{schemas(t) + "/{{.ResourceKind}}{{.KindSuffix}}.json"}, validator.Opts{Strict: true, SkipKinds: other})
	if err != nil {
		t.Fatal(err)
	}
	validate := func(text string) validator.Result {
		return v.Validate("manifest", io.NopCloser(strings.NewReader(text)))[0]
	}
	for _, name := range []string{"plain", "all", "one"} {
		for _, text := range documents(t, values(t, name)) {
			monitor := strings.Contains(text, "\nkind: ServiceMonitor\n")
			if r := validate(text); r.Status != validator.Valid && !(monitor && r.Status == validator.Skipped) {
				t.Errorf("%s: %v\n%s", name, r.Err, text)
			}
			// else this test proves nothing
			if r := validate(text + "unknown: true\n"); r.Status != validator.Invalid && !monitor {
				t.Errorf("%s: an unknown field is accepted:\n%s", name, text)
			}
		}
	}
}
