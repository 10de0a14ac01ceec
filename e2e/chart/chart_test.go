package chart

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

const (
	directory = "../../charts/weir"
	manifests = "../../deploy/kubernetes/weir.yaml"
)

var update = flag.Bool("update", false, "write deploy/kubernetes/weir.yaml anew")

// values reads the values of a file of charts/weir/ci.
func values(t *testing.T, name string) map[string]any {
	t.Helper()
	v, err := chartutil.ReadValuesFile(filepath.Join(directory, "ci", name+"-values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// render returns the manifests of a release by the name of their template.
func render(values map[string]any) (map[string]string, error) {
	loaded, err := loader.Load(directory)
	if err != nil {
		return nil, err
	}
	release := chartutil.ReleaseOptions{Name: "weir", Namespace: "default", IsInstall: true}
	all, err := chartutil.ToRenderValuesWithSchemaValidation(loaded, values, release, chartutil.DefaultCapabilities, false)
	if err != nil {
		return nil, err
	}
	return engine.Render(loaded, all)
}

// documents returns the manifests, in the order of their templates.
func documents(t *testing.T, values map[string]any) (all []string) {
	t.Helper()
	files, err := render(values)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !strings.HasSuffix(name, ".yaml") {
			continue
		}
		for _, one := range strings.Split("\n"+files[name], "\n---\n") {
			if one = strings.TrimSpace(one); one != "" {
				all = append(all, one+"\n")
			}
		}
	}
	return all
}

func TestHelmFindsNoFault(t *testing.T) {
	for _, name := range []string{"plain", "all", "one"} {
		linter := lint.All(directory, values(t, name), "default", true)
		for _, m := range linter.Messages {
			if m.Severity > support.InfoSev {
				t.Errorf("%s: %v", name, m)
			}
		}
	}
}

// The types that a manifest may have. A ServiceMonitor belongs to Prometheus' operator.
func typed(kind string) any {
	switch kind {
	case "Deployment":
		return new(apps.Deployment)
	case "Service":
		return new(core.Service)
	case "ConfigMap":
		return new(core.ConfigMap)
	case "PodDisruptionBudget":
		return new(policy.PodDisruptionBudget)
	case "HorizontalPodAutoscaler":
		return new(autoscaling.HorizontalPodAutoscaler)
	case "NetworkPolicy":
		return new(networking.NetworkPolicy)
	case "ServiceMonitor":
		return new(monitoring.ServiceMonitor)
	}
	return nil
}

// A field that Kubernetes does not know, or a value of another type, is an error.
func TestKubernetesKnowsEveryField(t *testing.T) {
	for name, want := range map[string]int{"plain": 6, "all": 8, "one": 4} {
		all := documents(t, values(t, name))
		if len(all) != want {
			t.Errorf("%s renders %d manifests, want %d", name, len(all), want)
		}
		for _, text := range all {
			var head struct {
				Kind string `json:"kind"`
			}
			if err := yaml.Unmarshal([]byte(text), &head); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, text)
			}
			object := typed(head.Kind)
			if object == nil {
				t.Errorf("%s: a manifest has the kind %q", name, head.Kind)
				continue
			}
			if err := yaml.UnmarshalStrict([]byte(text), object); err != nil {
				t.Errorf("%s: %s: %v", name, head.Kind, err)
			}
		}
	}
}

// Names that one manifest has for a part of another are right, and the pod may end in time.
func TestThePartsFitTogether(t *testing.T) {
	for _, name := range []string{"plain", "all", "one"} {
		var deployment apps.Deployment
		var service core.Service
		maps, ports := map[string]bool{}, map[string]bool{}
		for _, text := range documents(t, values(t, name)) {
			switch {
			case strings.Contains(text, "\nkind: Deployment\n"):
				decode(t, text, &deployment)
			case strings.Contains(text, "\nkind: Service\n"):
				decode(t, text, &service)
			case strings.Contains(text, "\nkind: ConfigMap\n"):
				var m core.ConfigMap
				decode(t, text, &m)
				maps[m.Name] = true
			}
		}
		pod := deployment.Spec.Template
		for _, selector := range []map[string]string{deployment.Spec.Selector.MatchLabels, service.Spec.Selector} {
			for key, value := range selector {
				if pod.Labels[key] != value {
					t.Errorf("%s: the selector %s=%s does not select the pod", name, key, value)
				}
			}
		}
		container := pod.Spec.Containers[0]
		for _, p := range container.Ports {
			ports[p.Name] = true
		}
		for _, p := range service.Spec.Ports {
			if !ports[p.TargetPort.String()] {
				t.Errorf("%s: the Service leads to the port %s, which the pod does not have", name, p.TargetPort.String())
			}
		}
		volumes := 0
		for _, v := range pod.Spec.Volumes {
			if v.ConfigMap != nil {
				if volumes++; !maps[v.ConfigMap.Name] {
					t.Errorf("%s: there is no ConfigMap %s", name, v.ConfigMap.Name)
				}
			}
		}
		if volumes != 2 || len(container.VolumeMounts) != len(pod.Spec.Volumes) {
			t.Errorf("%s: %d of %d volumes are ConfigMaps, and %d are mounted", name, volumes, len(pod.Spec.Volumes), len(container.VolumeMounts))
		}
		for _, m := range container.VolumeMounts {
			if m.SubPath != "" {
				t.Errorf("%s: %s is mounted by a subPath, which is never updated", name, m.Name)
			}
		}
		if grace, stop := *pod.Spec.TerminationGracePeriodSeconds, container.Lifecycle.PreStop.Sleep.Seconds; grace <= stop+30 {
			t.Errorf("%s: the pod is killed %d seconds after it was asked to end, and needs %d", name, grace, stop+30)
		}
		s := container.SecurityContext
		if !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation || !*pod.Spec.SecurityContext.RunAsNonRoot ||
			pod.Spec.SecurityContext.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault || s.Capabilities.Drop[0] != "ALL" {
			t.Errorf("%s: the pod may do more than it needs", name)
		}
	}
}

func decode(t *testing.T, text string, object any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), object); err != nil {
		t.Fatal(err)
	}
}

// A mistake that would let callers through, or start no server, renders nothing.
func TestValuesThatWouldNotLimitAreRefused(t *testing.T) {
	for _, c := range []struct{ what, values, want string }{
		{"no backend", "{}", "settings.upstream is empty"},
		{"several pods that count apart", "{replicas: 2, settings: {upstream: 'http://api:3000'}}", "store.secret is empty"},
		{"an autoscaler without a store", "{autoscaling: {enabled: true}, settings: {upstream: 'http://api:3000'}}", "store.secret is empty"},
		{"Prometheus without access", "{serviceMonitor: {enabled: true}, settings: {upstream: 'http://api:3000'}}", "needs metrics.open"},
		{"a value that the chart does not have", "{replica: 2, settings: {upstream: 'http://api:3000'}}", "replica"},
		{"a setting that the chart decides", "{settings: {upstream: 'http://api:3000', listen: ':80'}}", "invalid propertyName 'listen'"},
		{"a setting that is no flag", "{settings: {upstream: 'http://api:3000', trusted-proxy: [10.0.0.0/8]}}", "invalid propertyName 'trusted-proxy'"},
		{"an autoscaler that cannot measure", "{autoscaling: {enabled: true}, store: {secret: s}, settings: {upstream: 'http://api:3000'}, resources: {requests: {cpu: null}}}", "resources.requests.cpu"},
		{"an autoscaler whose bounds are swapped", "{autoscaling: {enabled: true, minReplicas: 9}, store: {secret: s}, settings: {upstream: 'http://api:3000'}}", "autoscaling.minReplicas"},
		{"no second to leave the Service", "{preStopSeconds: 0, settings: {upstream: 'http://api:3000'}}", "preStopSeconds"},
	} {
		v, err := chartutil.ReadValues([]byte(c.values))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := render(v); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: the error is %v, want one with %q", c.what, err, c.want)
		}
	}
}

// The text of a file in a ConfigMap is what the value has, whatever its first line begins with.
func TestThePolicyArrivesAsItIs(t *testing.T) {
	const policy, file = "  # indented\nlimiters: []\n", "\n   192.0.2.0/24\n198.51.100.0/24\n"
	v := values(t, "one")
	v["policy"], v["policyFiles"] = policy, map[string]any{"blocked.txt": file}
	for _, text := range documents(t, v) {
		var m core.ConfigMap
		if !strings.Contains(text, "\nkind: ConfigMap\n") || !strings.Contains(text, "name: weir-policy\n") {
			continue
		}
		decode(t, text, &m)
		if m.Data["policy.yaml"] != policy || m.Data["blocked.txt"] != file {
			t.Errorf("the ConfigMap has %q", m.Data)
		}
		return
	}
	t.Error("there is no ConfigMap of the policy")
}

func TestTheManifestsAreTheRenderedChart(t *testing.T) {
	var want bytes.Buffer
	want.WriteString("# The chart of charts/weir with the values of charts/weir/ci/plain-values.yaml: two pods that share a store.\n" +
		"# Create the Secret first (docs/kubernetes.md), and edit upstream and the policy.\n" +
		"# cd e2e/chart && go test -run Manifests -update writes this file.\n")
	for i, text := range documents(t, values(t, "plain")) {
		if i > 0 {
			want.WriteString("---\n")
		}
		fmt.Fprint(&want, strings.ReplaceAll(text, "app.kubernetes.io/managed-by: Helm", "app.kubernetes.io/managed-by: kubectl"))
	}
	if *update {
		if err := os.WriteFile(manifests, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(manifests); err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%s is not the chart's (%v): cd e2e/chart && go test -run Manifests -update", manifests, err)
	}
}
