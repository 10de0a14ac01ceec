package chart

import (
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// A namespace that enforces the strictest of the Pod Security Standards admits the pods.
func TestARestrictedNamespaceAdmitsThePods(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	restricted := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	for _, name := range []string{"plain", "all", "one"} {
		for _, text := range documents(t, values(t, name)) {
			if !strings.Contains(text, "\nkind: Deployment\n") {
				continue
			}
			var d apps.Deployment
			decode(t, text, &d)
			pod := d.Spec.Template
			result := policy.AggregateCheckResults(evaluator.EvaluatePod(restricted, &pod.ObjectMeta, &pod.Spec))
			if !result.Allowed {
				t.Errorf("%s: %s", name, result.ForbiddenDetail())
			}
		}
	}
}
