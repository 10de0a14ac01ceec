package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/headers"
)

// checkLanguage asks for refusals in other languages while main's budget is spent, and compares
// them with the plain one.
func checkLanguage(c *check) hooks {
	return hooks{
		needsRefusals: true,
		spent: func(ctx context.Context, t *tally) error {
			base := t.firstRefused
			if wrong := wrongRefusal(c.seen.responses, base); wrong != "" {
				c.untested(Unobservable.because("the plain 429 does not have the shape: %s", wrong))
				return nil
			}
			var seen []string
			for _, language := range []string{"en", "de", "fr;q=0.9, en;q=0.1", "tlh"} {
				a, got, err := c.attempt(ctx, t, c.plain().with("Accept-Language", language))
				if err != nil {
					return err
				}
				if got == escaped {
					c.escape(a, "Accept-Language: "+language)
				}
				if got != stillRefused {
					c.untested(NeedsMore.because("it was not refused in every language"))
					return nil
				}
				c.remember(a)
				seen = append(seen, language+" → "+judgeLanguage(c, a, base, language))
			}
			c.kept("the same shape; Accept-Language → Content-Language: %s", strings.Join(seen, ", "))
			return nil
		},
	}
}

// judgeLanguage judges one refusal, and returns the language that it names.
func judgeLanguage(c *check, a, base *answer, asked string) string {
	named := a.header.Get("Content-Language")
	if wrong := wrongRefusal(c.seen.responses, a); wrong != "" {
		c.broken(a, "asked for in %s: %s", asked, wrong)
	} else if named == "" && !sameError(a.body, base.body) {
		c.broken(a, "asked for in %s, the message differs, and Content-Language does not name its language", asked)
	}
	if named == "" {
		return "none"
	}
	return named
}

// wrongRefusal returns what is wrong with a 429's shape; "" means nothing.
func wrongRefusal(w *weir.Responses, a *answer) string {
	if wrong := problem(a.header, append(standing(), headers.RetryAfter)...); wrong != "" {
		return wrong
	}
	if wrong := wrongType(w, a); wrong != "" {
		return wrong
	}
	return wrongBody(w, a.body)
}

// sameError reports whether two bodies are equal, or are the same error object.
func sameError(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	type shape struct {
		Error struct{ Code, Message string }
	}
	var one, two shape
	if json.Unmarshal(a, &one) != nil || json.Unmarshal(b, &two) != nil {
		return false
	}
	return one == two && one.Error.Message != ""
}
