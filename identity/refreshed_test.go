package identity_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/weirlimit/weir/identity"
)

// A service whose refreshed tokens have no sid gives a new budget with each (D14). It is told once.
func TestRefreshedTokensWithoutASidAreReportedOnce(t *testing.T) {
	for _, c := range []struct {
		name   string
		tokens []any // the claims of the tokens, in order
		want   []string
	}{
		{"a fresh jti", []any{claims("sub", "ada", "iss", "a", "jti", "1"), claims("sub", "ada", "iss", "a", "jti", "2")}, []string{"a"}},
		{"neither sid nor jti", []any{claims("sub", "ada", "n", 1), claims("sub", "ada", "n", 2)}, []string{""}},
		{"others between", []any{claims("sub", "ada", "jti", "1"), claims("sub", "grace", "jti", "2"), claims("sub", "ada", "jti", "3")}, []string{""}},
		{"the same jti", []any{claims("sub", "ada", "jti", "1", "n", 1), claims("sub", "ada", "jti", "1", "n", 2)}, nil},
		{"a sid", []any{claims("sub", "ada", "jti", "1", "sid", "s"), claims("sub", "ada", "jti", "2", "sid", "t")}, nil},
		{"two subjects", []any{claims("sub", "ada", "jti", "1"), claims("sub", "grace", "jti", "2")}, nil},
		{"two issuers", []any{claims("sub", "ada", "iss", "a", "jti", "1"), claims("sub", "ada", "iss", "b", "jti", "2")}, nil},
		{"no subject", []any{claims("jti", "1"), claims("jti", "2")}, nil},
		{"often", []any{claims("sub", "ada", "jti", "1"), claims("sub", "ada", "jti", "2"), claims("sub", "ada", "jti", "3")}, []string{""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			r, _ := verifier(t, identity.SessionsOptions{Refreshed: func(issuer string) { got = append(got, issuer) }})
			for _, claims := range c.tokens {
				budget(t, r, hs256(claims))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("reported %q, want %q", got, c.want)
			}
		})
	}
}

// Without a common subject nobody can tell a refreshed token from another visitor's, so it is only
// reported, once, that none of many tokens has a sid (D14).
func TestManyTokensWithoutASidAreReportedOnce(t *testing.T) {
	for _, c := range []struct {
		name   string
		claims func(i int) any
		want   []int // each is the number of tokens that it was called with
		at     int   // the token that shows it, from 1; 0: none
	}{
		{"no subject", func(i int) any { return claims("jti", fmt.Sprint(i)) }, []int{20}, 20},
		{"another subject each", func(i int) any { return claims("jti", fmt.Sprint(i), "sub", fmt.Sprint("user ", i)) }, []int{20}, 20},
		{"neither sid nor jti", func(i int) any { return claims("n", i) }, []int{20}, 20},
		{"each token twice", func(i int) any { return claims("jti", fmt.Sprint(i/2), "n", i) }, []int{20}, 39},
		{"few tokens", func(i int) any { return claims("jti", fmt.Sprint(i%19), "n", i) }, nil, 0},
		{"a sid among them", func(i int) any {
			if i == 5 {
				return claims("sid", "s")
			}
			return claims("jti", fmt.Sprint(i))
		}, nil, 0},
		{"refreshed before", func(i int) any { return claims("jti", fmt.Sprint(i), "sub", fmt.Sprint(i%10)) }, nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []int
			at := 0
			r, _ := verifier(t, identity.SessionsOptions{WithoutSid: func(n int) { got = append(got, n) }})
			for i := range 100 {
				budget(t, r, hs256(c.claims(i)))
				if len(got) > 0 && at == 0 {
					at = i + 1
				}
			}
			if !slices.Equal(got, c.want) || at != c.at {
				t.Errorf("reported %v at token %d, want %v at %d", got, at, c.want, c.at)
			}
		})
	}
}

// Tokens that do not verify prove nothing, and neither does a budget for each token that is wanted.
func TestOnlyVerifiedTokensAreFoundToBeRefreshed(t *testing.T) {
	report := func(string) { t.Error("reported") }
	r, _ := verifier(t, identity.SessionsOptions{Refreshed: report})
	for i := range 2 {
		forged := signed(header("HS256"), claims("sub", "ada", "jti", fmt.Sprint(i)), mac([]byte("another secret of 32 bytes or more")))
		if _, err := caller(r, bearing(forged)).Session(); err == nil {
			t.Fatal("a forged token is accepted")
		}
	}
	each, _ := verifier(t, identity.SessionsOptions{Refreshed: report, WithoutSid: func(int) { t.Error("reported") }, BudgetPerToken: true})
	for i := range 20 {
		budget(t, each, hs256(claims("sub", "ada", "jti", fmt.Sprint(i))))
	}
}
