package verify

import "testing"

// A route with parameters is driven with a made-up segment in their place.
func TestALimiterWithParametersKeepsEveryClause(t *testing.T) {
	r := verifiedByField(t, "limiters: [{name: all, routes: ['/t/{tenant}/*', 'GET /t/{tenant}/items/{item}'], windows: [20 per minute by ip]}]", nil, nil)
	if r.Broken() {
		t.Errorf("a clause is broken:\n%s", table(r))
	}
	for _, clause := range []string{"admitted", "shared"} {
		if got := verdictOf(t, r, clause); got.Verdict != Kept {
			t.Errorf("%s is %s: %s", clause, got.Verdict, got.Detail)
		}
	}
}

// What one prefix covers of another's routes does not depend on the names of parameters.
func TestAPathBeginsWithAPrefixThatHasParameters(t *testing.T) {
	for _, c := range []struct {
		path, prefix string
		want         bool
	}{
		{"/t/acme/x", "/t/{tenant}/", true}, {"/t/{a}/x", "/t/{b}/", true}, {"/t/{a}/x", "/t/acme/", true}, {"/t/{a}", "/", true},
		{"/t/acme", "/t/a", true}, {"/t/acme", "/t/{tenant}/", false}, {"/u/acme/x", "/t/{tenant}/", false}, {"/t", "/t/", false},
	} {
		if got := begins(c.path, c.prefix); got != c.want {
			t.Errorf("%s begins with %s: %v", c.path, c.prefix, got)
		}
	}
}
