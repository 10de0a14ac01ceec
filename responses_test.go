package weir_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
)

// The parts of a text are the text again, and no part of a text with another brace is said.
func FuzzATextIsItsParts(f *testing.F) {
	for _, s := range []string{"", "a", "{limiter}", "a {limit} b {retry_after}{reset}", "{reason", "}", "{}", "{{limit}}", "{Limit}", "{limit }", "ü{limit}ü"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		parts, err := weir.ParseText(s)
		if err != nil {
			if !strings.ContainsAny(s, "{}") || parts != nil {
				t.Fatalf("%q is %v, %v", s, parts, err)
			}
			return
		}
		var b strings.Builder
		for _, p := range parts {
			if (p.Literal == "") == (p.Placeholder == "") || strings.ContainsAny(p.Literal, "{}") {
				t.Fatalf("%q has the part %+v", s, p)
			}
			if b.WriteString(p.Literal); p.Placeholder != "" {
				b.WriteString("{" + p.Placeholder + "}")
			}
		}
		if b.String() != s {
			t.Fatalf("%q is %v", s, parts)
		}
	})
}

// A policy without a door has its problems, each with its path.
func TestProblemsOfWordsHaveTheirPaths(t *testing.T) {
	p := wordy(t)
	p.Messages["m"]["de"] = "{nothing}"
	p.Messages["M"] = weir.Texts{"en": "ok"}
	p.Answers.Format = 9
	p.Answers.Refused.Status = 200
	p.Answers.Refused.Credentials = map[string]string{"token": "m"}
	// no answer is for the lack of a claim: only session, token and cert can be required
	p.Answers.Unauthenticated.Credentials = map[string]string{"claim:org": "m"}
	p.Answers.Unavailable.Fields = map[string]string{"X-A": "a\nb"}
	var got []string
	for _, x := range p.Problems(nil) {
		if x.Limiter != -1 || x.Message == "" {
			t.Errorf("%+v", x)
		}
		got = append(got, x.Field)
	}
	want := []string{"messages.M", "messages.m.de", "answers.format", "answers.refused.status", "answers.refused.credentials.token",
		"answers.unauthenticated.credentials.claim:org", "answers.unavailable.fields.X-A"}
	if !slices.Equal(got, want) {
		t.Errorf("the problems are at %q, want %q", got, want)
	}
}

// A decision has the words of the policy that made it, whatever becomes of the policy that was
// given or returned.
func TestADecisionHasTheWordsOfItsPolicy(t *testing.T) {
	store, err := memstore.New(memstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := wordy(t)
	d, err := weir.New(p, store, weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p.Messages["m"]["en"], p.Answers.Refused.Fields["X-A"] = "changed", "changed"
	d.Policy().Messages["m"]["en"] = "changed"
	decide := func(path string) weir.Decision {
		decision, err := d.Decide(context.Background(), weir.Request{Method: "GET", Path: path, Keys: nobody{}})
		if err != nil {
			t.Fatal(err)
		}
		return decision
	}
	first, none := decide("/a"), decide("/b")
	if w := first.Responses(); w != d.Responses() || w.Messages["m"]["en"] != "text" || w.Answers.Refused.Fields["X-A"] != "a" {
		t.Errorf("the words are %+v", w)
	}
	if none.Responses() != nil {
		t.Error("a request that no limiter covers has words")
	}
	if err := d.Swap(p); err != nil {
		t.Fatal(err)
	}
	second := decide("/a")
	if first.Responses().Messages["m"]["en"] != "text" || second.Responses().Messages["m"]["en"] != "changed" {
		t.Errorf("the words are %+v, then %+v", first.Responses(), second.Responses())
	}
}

type nobody struct{}

func (nobody) AppendKey(dst []byte, _ string) ([]byte, bool) { return dst, false }

func wordy(t *testing.T) weir.Policy {
	t.Helper()
	w, err := weir.ParseWindow("9 per minute by ip")
	if err != nil {
		t.Fatal(err)
	}
	return weir.Policy{
		Limiters: []weir.Limiter{{Name: "l", Routes: []weir.Route{{Path: "/a"}}, Windows: []weir.Window{w}}},
		Responses: weir.Responses{
			Messages: map[string]weir.Texts{"m": {"en": "text"}},
			Answers:  weir.Answers{Refused: weir.Answer{Message: "m", Fields: map[string]string{"X-A": "a"}}},
		},
	}
}
