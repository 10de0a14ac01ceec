package verify

import (
	"context"
	"encoding/json"
	"fmt"
	"mime"
	"time"

	"github.com/weirlimit/weir"
)

// Clauses about a single 429, whichever limiter refused.

func checkRefusedStatus(c *check) hooks {
	return hooks{
		needsRefusals: true,
		unseen:        Unobservable.because("no request was refused"),
		answered: func(a *answer) {
			switch {
			case a.admitted():
			case a.status == refusedStatus(c.seen.responses):
				c.kept("%d on every refusal", a.status)
			default:
				c.broken(a, "a request over the limit is refused with %d", a.status)
			}
		},
	}
}

func checkRefusedType(c *check) hooks {
	return hooks{
		needsRefusals: true,
		answered: func(a *answer) {
			if a.admitted() {
				return
			}
			if wrong := wrongType(c.seen.responses, a); wrong != "" {
				c.broken(a, "%s", wrong)
				return
			}
			c.kept("%s", a.header.Get("Content-Type"))
		},
	}
}

func checkRefusedBody(c *check) hooks {
	return hooks{
		needsRefusals: true,
		answered: func(a *answer) {
			if a.admitted() {
				return
			}
			if wrong := wrongBody(c.seen.responses, a.body); wrong != "" {
				c.broken(a, "%s", wrong)
				return
			}
			what := "code rate_limited and a message"
			if c.seen.responses.Answers.Format == weir.FormatProblem {
				what = "a problem document"
			}
			c.kept("%s", what)
		},
	}
}

// checkRefusedRemaining reads every 429, and the answers of the budget that was used up: after an
// answer with Remaining 0 the window must admit nothing.
func checkRefusedRemaining(c *check) hooks {
	return hooks{
		needsRefusals: true,
		answered: func(a *answer) {
			if !a.admitted() && a.remaining > 0 {
				c.broken(a, "Remaining is %d on a %d", a.remaining, a.status)
			}
		},
		drained: func(_ context.Context, s *spending) error {
			if zero := c.firstZero(s); zero != nil {
				judgeAfterZero(c, s.tally, zero)
			}
			return nil
		},
		concluded: func() {
			if t := c.seen.now(); t != nil && t.refused > 0 {
				c.kept("0 on every 429")
			}
		},
	}
}

func judgeAfterZero(c *check, t *tally, zero *answer) {
	for _, s := range t.admitted {
		if s.sent.After(zero.at) {
			c.brokenByCount(s.answer, "answered %d, %s after an answer of the same window with Remaining %d",
				s.status, s.sent.Sub(zero.at).Round(time.Microsecond), zero.remaining)
			return
		}
	}
	if t.refused > 0 {
		c.kept("0 on every 429, and 429 after %d", zero.remaining)
	}
}

// wrongType returns what is wrong with a 429's type; "" means nothing.
func wrongType(w *weir.Responses, a *answer) string {
	kind, want := a.header.Get("Content-Type"), "application/json"
	if w.Answers.Format == weir.FormatProblem {
		want = "application/problem+json"
	}
	if media, _, err := mime.ParseMediaType(kind); err != nil || media != want {
		return fmt.Sprintf("Content-Type is %.60q", kind)
	}
	return ""
}

// wrongBody returns what is wrong with a 429's body; "" means nothing.
func wrongBody(w *weir.Responses, body []byte) string {
	if w.Answers.Format == weir.FormatProblem {
		return wrongProblem(w, body)
	}
	var shape struct {
		Error *struct {
			Code    *string `json:"code"`
			Message *string `json:"message"`
		} `json:"error"`
	}
	switch err := json.Unmarshal(body, &shape); {
	case err != nil:
		return "the body is not the error object in JSON: " + err.Error()
	case shape.Error == nil:
		return "the body has no object \"error\""
	case shape.Error.Code == nil || *shape.Error.Code != "rate_limited":
		return "error.code is not rate_limited"
	case shape.Error.Message == nil || *shape.Error.Message == "":
		return "error.message is missing or empty"
	}
	return ""
}

// wrongProblem returns what is wrong with the problem document of a refusal; "" means nothing.
func wrongProblem(w *weir.Responses, body []byte) string {
	var shape struct {
		Type   string `json:"type"`
		Title  string `json:"title"`
		Detail string `json:"detail"`
		Status *int   `json:"status"`
	}
	switch err := json.Unmarshal(body, &shape); {
	case err != nil:
		return "the body is not a problem document in JSON: " + err.Error()
	case shape.Type == "" || shape.Title == "" && shape.Detail == "":
		return "the problem document has no type, or neither title nor detail"
	case shape.Status != nil && *shape.Status != refusedStatus(w):
		return fmt.Sprintf("the problem document has the status %d", *shape.Status)
	}
	return ""
}
