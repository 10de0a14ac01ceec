package explain

import (
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
)

// why returns the reasons of a request to a limiter l under a policy with answers.
func why(t *testing.T, l weir.Limiter, answers weir.Answers) string {
	t.Helper()
	w, err := weir.ParseWindow("5 per minute by token or ip")
	if err != nil {
		t.Fatal(err)
	}
	l.Name, l.Routes, l.Windows = "l", []weir.Route{{Path: "/", Prefix: true}}, []weir.Window{w}
	e, err := Request(weir.Policy{Limiters: []weir.Limiter{l}, Responses: weir.Responses{Answers: answers}}, "GET", "/a", Caller{})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(e.Why, "\n")
}

func TestTheStatusOfAMissingCredentialIsThatOfThePolicy(t *testing.T) {
	for status, want := range map[int]string{0: "answered 401", 403: "answered 403", 404: "answered 404"} {
		answers := weir.Answers{Unauthenticated: weir.Answer{Status: status}}
		if got := why(t, weir.Limiter{Requires: identity.Token}, answers); !strings.Contains(got, want) {
			t.Errorf("status %d: the reasons do not contain %q:\n%s", status, want, got)
		}
	}
}

func TestPercentagesThatMakeAnEventAreExplained(t *testing.T) {
	const enforced = "the request that brings a window's count to 75 or 100 percent of its limit makes an event"
	if got := why(t, weir.Limiter{Notify: []int64{75, 100}}, weir.Answers{}); !strings.Contains(got, enforced) {
		t.Errorf("the reasons do not contain %q:\n%s", enforced, got)
	}
	if got := why(t, weir.Limiter{}, weir.Answers{}); strings.Contains(got, "event") {
		t.Errorf("a limiter without notify makes an event:\n%s", got)
	}
}
