package verify

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/weirlimit/weir/headers"
)

// Clauses about which answers carry the fields.

// A fieldsCheck wants the three fields on each answer of a kind.
type fieldsCheck struct {
	*check
	mu       sync.Mutex
	statuses []int // of the answers that had them
}

func (c *fieldsCheck) see(a *answer) {
	if wrong := problem(a.header, standing()...); wrong != "" {
		c.broken(a, "on a %d %s", a.status, wrong)
		return
	}
	c.mu.Lock()
	if !slices.Contains(c.statuses, a.status) {
		c.statuses = append(c.statuses, a.status)
		slices.Sort(c.statuses)
	}
	text := fmt.Sprint(c.statuses)
	c.mu.Unlock()
	c.kept("on answers with status %s", text[1:len(text)-1])
}

func checkFieldsServed(c *check) hooks {
	fields := &fieldsCheck{check: c}
	return hooks{
		unseen: Unobservable.because("no request was served"),
		answered: func(a *answer) {
			switch {
			case !a.admitted():
			case a.status < 400:
				fields.see(a)
			case a.complete() && c.verdict() == "":
				c.kept("on admitted requests that were answered %d: successful answers need valid bodies (real)", a.status)
			}
		},
	}
}

func checkFieldsError(c *check) hooks {
	fields := &fieldsCheck{check: c}
	return hooks{
		unseen: inherently("no error was answered"),
		answered: func(a *answer) {
			if a.admitted() && a.status >= 400 && a.status < 500 {
				fields.see(a)
			}
		},
	}
}

func checkFields5xx(c *check) hooks {
	fields := &fieldsCheck{check: c}
	return hooks{
		unseen: inherently("no server error was answered"),
		failed: fields.see,
		answered: func(a *answer) {
			if a.admitted() && a.status >= 500 {
				fields.see(a)
			}
		},
	}
}

func checkFieldsPreflight(c *check) hooks {
	fields := &fieldsCheck{check: c}
	return hooks{
		preflight: func(a *answer) {
			switch {
			case a.admitted():
				fields.see(a)
			case problem(a.header, standing()...) == "":
				c.kept("on a refused preflight, whose own budget was spent")
			}
		},
		preflighted: func(_ context.Context, p preflighting) error {
			if !p.why.isZero() {
				c.untested(p.why)
			}
			return nil
		},
	}
}

func checkFieldsRefused(c *check) hooks {
	return hooks{
		needsRefusals: true,
		unseen:        Unobservable.because("no request was refused"),
		answered: func(a *answer) {
			if a.admitted() {
				return
			}
			if wrong := problem(a.header, append(standing(), headers.RetryAfter)...); wrong != "" {
				c.broken(a, "on a %d %s", a.status, wrong)
				return
			}
			c.kept("all four, each once, on every 429")
		},
	}
}

func checkRetryAfterOnlyRefused(c *check) hooks {
	return hooks{
		unseen: Unobservable.because("every answer was a 429"),
		answered: func(a *answer) {
			if !a.admitted() {
				return
			}
			if values := a.header.Values(headers.RetryAfter); len(values) > 0 {
				c.broken(a, "a %d has Retry-After: %.40q", a.status, values[0])
				return
			}
			c.kept("no other answer had it")
		},
	}
}

// checkExposed reads every answer to a request with the verifier's Origin.
func checkExposed(c *check) hooks {
	return hooks{
		unseen: Unobservable.because("no answer to a cross-origin request was seen"),
		answered: func(a *answer) {
			if a.request.fields["Origin"] != verifyOrigin || a.request.method == http.MethodOptions {
				return
			}
			missing := notExposed(a)
			origin := a.header.Get("Access-Control-Allow-Origin")
			switch {
			case len(missing) == 0 && origin == "":
				c.kept("all four are named, though origin %s is not allowed", verifyOrigin)
			case len(missing) == 0:
				c.kept("all four, also on errors and 429s")
			case origin == "" && !(isUnder(a.request.path, "/api/v1/widget") && c.run.countsPreflights()):
				c.untested(inherently("answers allow no other origin"))
			case a.status >= 502:
			default:
				c.broken(a, "Access-Control-Expose-Headers on a %d does not name %s", a.status, strings.Join(missing, ", "))
			}
		},
	}
}

// notExposed returns the fields that a browser hides from a page of another origin.
func notExposed(a *answer) (missing []string) {
	list := strings.Join(a.header.Values("Access-Control-Expose-Headers"), ",")
	for _, name := range append(standing(), headers.RetryAfter) {
		if !slices.ContainsFunc(strings.Split(list, ","), func(item string) bool {
			item = strings.TrimSpace(item)
			return strings.EqualFold(item, name) || item == "*" && a.header.Get("Access-Control-Allow-Credentials") != "true"
		}) {
			missing = append(missing, name)
		}
	}
	return missing
}
