package verify_test

import (
	"net/http"
	"testing"

	"github.com/weirlimit/weir/internal/verify"
)

// What the verifier is given may be wrong, and the server right.
func TestWhatWasGivenWronglyIsNoBrokenClause(t *testing.T) {
	const unknown = "wpt_verifyunknown_0123456789abcdef"
	for name, change := range map[string]func(*verify.Options){
		"a token that nobody knows":       func(o *verify.Options) { o.Tokens = []string{unknown} },
		"two tokens that nobody knows":    func(o *verify.Options) { o.Tokens = []string{unknown, unknown + "x"} },
		"a second token that nobody does": func(o *verify.Options) { o.Tokens = []string{tokenA, unknown} },
		"a session that has expired":      func(o *verify.Options) { o.Sessions = []string{"eyJhbGciOiJIUzI1NiJ9.eyJzaWQiOiJhIn0.c2ln"} },
		"sessions that are none":          func(o *verify.Options) { o.Sessions = []string{"nonsense", "and more of it"} },
		"no agent":                        func(o *verify.Options) { o.Agent = "nobody-has-this-one" },
		"a credential with every request": func(o *verify.Options) { o.Header = http.Header{"Authorization": {"Bearer " + tokenA}} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := verified(t, newAPI(small()), func(o *verify.Options) {
				o.Limiters = []string{"widget-session", "wp-plugin"}
				change(o)
			})
			for clause, results := range found(report, verify.Broken) {
				t.Errorf("%s is called broken%s", clause, describe(results))
			}
			if kept := len(found(report, verify.Kept)); kept < len(verify.Clauses)*2/3 {
				t.Errorf("%d clauses were found kept: untested are%s", kept, describe(report.Results))
			}
		})
	}
}
