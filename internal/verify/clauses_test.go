package verify

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"testing/synctest"
)

func TestEveryRowOfTheTableIsComplete(t *testing.T) {
	var ids []string
	for _, c := range Clauses {
		if c.ID == "" || c.Says == "" || c.Source == "" || c.check == nil || slices.Contains(ids, c.ID) {
			t.Errorf("clause %q is incomplete, or is listed twice", c.ID)
		}
		ids = append(ids, c.ID)
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`isBroken\("(.*?)"\)`).FindAllSubmatch(source, -1) {
			if !slices.Contains(ids, string(m[1])) {
				t.Errorf("%s reads the verdict on %s, which is not a clause", file, m[1])
			}
		}
	}
}

func TestAClauseIsARowAndAFunction(t *testing.T) {
	before := Clauses
	defer func() { Clauses = before }()
	Clauses = append(slices.Clone(before), Clause{"teapot", "no answer is a 418", "RFC 2324", func(c *check) hooks {
		return hooks{answered: func(a *answer) {
			if a.status == http.StatusTeapot {
				c.broken(a, "a pot of tea")
				return
			}
			c.kept("on every answer")
		}}
	}})
	synctest.Test(t, func(t *testing.T) {
		policy := onePolicy("10 per 5 seconds by ip")
		handler := limited(t, policy, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
		n := newNetwork()
		defer n.serving(handler)()
		report := verified(t, n.options(policyOf(t, policy)))
		last := report.Results[len(report.Results)-1]
		if last.Clause != "teapot" || last.Verdict != Broken || last.Exchange == nil {
			t.Errorf("the report ends with %+v", last)
		}
	})
}
