package verify_test

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/verify"
)

// If the verifier's input is wrong, the server is not reported as broken.
func TestWrongInputBreaksNoClause(t *testing.T) {
	for name, change := range map[string]func(*verify.Options){
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
				t.Errorf("%s is reported as broken%s", clause, describe(results))
			}
			if kept := len(found(report, verify.Kept)); kept < len(verify.Clauses)*2/3 {
				t.Errorf("%d clauses were found kept: untested are%s", kept, describe(report.Results))
			}
		})
	}
}

// If a given credential does not verify, an error names it before anything is
// tested.
func TestAnInvalidCredentialIsAnError(t *testing.T) {
	const unknown = "wpt_verifyunknown_0123456789abcdef"
	for name, test := range map[string]struct {
		change func(*verify.Options)
		want   verify.CredentialError
	}{
		"a token that nobody knows":       {func(o *verify.Options) { o.Tokens = []string{unknown} }, verify.CredentialError{Kind: "API token", Number: 1, Of: 1, Request: "GET /v1/wp/status"}},
		"a second token that nobody does": {func(o *verify.Options) { o.Tokens = []string{tokenA, unknown} }, verify.CredentialError{Kind: "API token", Number: 2, Of: 2, Request: "GET /v1/wp/status"}},
		"a session that has expired": {func(o *verify.Options) { o.Sessions = []string{"eyJhbGciOiJIUzI1NiJ9.eyJzaWQiOiJhIn0.c2ln"} },
			verify.CredentialError{Kind: "session token", Number: 1, Of: 1, Request: "POST /api/v1/widget/messages"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAPI(small())
			inBubble(t, a, func(t *testing.T, l *pipes) {
				o := verify.Options{
					URL: &url.URL{Scheme: "http", Host: "127.0.0.1:8080"}, Policy: policyOf(t, a.rules), Agent: agent, Dial: l.dial,
					Tokens: []string{tokenA, tokenB}, Limiters: []string{"widget-session", "wp-plugin"},
				}
				test.change(&o)
				plan, err := verify.NewPlan(o)
				if err != nil {
					t.Fatal(err)
				}
				report, err := plan.Run(t.Context())
				got, ok := errors.AsType[*verify.CredentialError](err)
				if !ok || *got != test.want || len(report.Results) > 0 || report.Sent > 2 {
					t.Errorf("error %v after %d requests, %d results; want %v", err, report.Sent, len(report.Results), &test.want)
				}
				if err != nil && (strings.Contains(err.Error(), unknown) || strings.Contains(err.Error(), "eyJ")) {
					t.Errorf("a credential is shown: %v", err)
				}
			})
		})
	}
}

// If a credential's caller is refused, a note reports that the credential could not
// be tried.
func TestAnUntriedCredentialIsNoted(t *testing.T) {
	a := newAPI(small())
	inBubble(t, a, func(t *testing.T, l *pipes) {
		client := &http.Client{Transport: &http.Transport{DialContext: l.dial, DisableKeepAlives: true}}
		for status := 0; status != http.StatusTooManyRequests; { // spends the address's budget
			answer, err := client.Get("http://127.0.0.1:8080/v1/wp/status")
			if err != nil {
				t.Fatal(err)
			}
			_ = answer.Body.Close()
			status = answer.StatusCode
		}
		plan, err := verify.NewPlan(verify.Options{
			URL: &url.URL{Scheme: "http", Host: "127.0.0.1:8080"}, Policy: policyOf(t, a.rules), Agent: agent, Dial: l.dial,
			Tokens: []string{"wpt_verifyunknown_0123456789abcdef"}, Limiters: []string{"wp-plugin"}, Quick: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		report, err := plan.Run(t.Context())
		if err != nil || len(report.Notes) != 1 || !strings.Contains(report.Notes[0], "could not be tried") {
			t.Errorf("notes %q, error %v", report.Notes, err)
		}
	})
}
