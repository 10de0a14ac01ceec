package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// The policy and the settings of the manifests for Kubernetes are accepted by this version: a flag
// that was renamed would be an error of each pod that starts. That the manifests are the chart's,
// and that Kubernetes knows their fields, is tested by 'make chart'.
func TestTheManifestsForKubernetesHaveASettingsFileThatIsAccepted(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(repository, "deploy/kubernetes/weir.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	dir, files := t.TempDir(), map[string]string{}
	var arguments []string
	for d := yaml.NewDecoder(bytes.NewReader(b)); ; {
		var manifest struct {
			Kind string
			Data map[string]string
			Spec struct {
				Template struct {
					Spec struct{ Containers []struct{ Args []string } }
				}
			}
		}
		if err := d.Decode(&manifest); err != nil {
			break // the end, or a file without what is wanted below
		}
		for name, text := range manifest.Data {
			files[name] = filepath.Join(dir, name)
			text = strings.ReplaceAll(text, "/etc/weir/policy/", dir+"/")
			if err := os.WriteFile(files[name], []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if manifest.Kind == "Deployment" {
			arguments = manifest.Spec.Template.Spec.Containers[0].Args
		}
	}
	if want := "serve --config /etc/weir/settings/weir.yaml"; strings.Join(arguments, " ") != want {
		t.Errorf("the container's arguments are %q, want %q", arguments, want)
	}
	for _, command := range [][]string{{"policy", "check", files["policy.yaml"]}, {"serve", "--check", "--config", files["weir.yaml"]}} {
		var printed bytes.Buffer
		if status := run(command, nil, strings.NewReader(""), &printed, &printed); status != 0 {
			t.Errorf("weir %v: status %d\n%s", command, status, printed.String())
		}
	}
}
