package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/weirlimit/weir"
)

func TestTheExposureOfEveryExampleFitsAScreen(t *testing.T) {
	for _, name := range []string{"", "../../examples/costly.yaml", "../../examples/policies/llm-api.yaml", "../../examples/policies/login.yaml", "../../examples/policies/public-api.yaml", "../../examples/policies/several-sites.yaml"} {
		policy, err := readPolicy(nil, name)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := printExposure(&b, policy.Policy); err != nil {
			t.Fatal(err)
		}
		for line := range strings.SplitSeq(fmt.Sprint(&b), "\n") {
			if n := utf8.RuneCountInString(line); n > 100 {
				t.Errorf("%s: a line of %d characters: %s", name, n, line)
			}
		}
	}
}

// What the caller may choose is declared wherever a policy is shown.
func TestAShownPolicyDeclaresWhatTheCallerMayChoose(t *testing.T) {
	w, err := weir.ParseWindow("5 per minute by header:X-Api-Key")
	if err != nil {
		t.Fatal(err)
	}
	for _, chosen := range []bool{true, false} {
		p := weir.Policy{Limiters: []weir.Limiter{{Name: "l", Windows: []weir.Window{w}, Chosen: chosen}}}
		var b strings.Builder
		if err := printExposure(&b, p); err != nil {
			t.Fatal(err)
		}
		if limitersJSON(p)[0].Chosen != chosen || strings.Contains(b.String(), "chosen: yes") != chosen {
			t.Errorf("chosen %v: %+v\n%s", chosen, limitersJSON(p)[0], b.String())
		}
	}
}

func TestTheExposureOfAPenaltyLeavesItOut(t *testing.T) {
	p := weir.Policy{Limiters: []weir.Limiter{{Name: "l", Windows: []weir.Window{{Limit: 5, Per: time.Minute, Key: weir.Key{{"ip"}}}}}}}
	var without, with strings.Builder
	if err := printExposure(&without, p); err != nil {
		t.Fatal(err)
	}
	p.Limiters[0].Penalty = weir.Penalty{After: 20, Per: time.Minute, For: 15 * time.Minute}
	if err := printExposure(&with, p); err != nil {
		t.Fatal(err)
	}
	const line = "  penalty: refused for 15 minutes after 20 refusals per minute; the figures are without it\n"
	if got := strings.Replace(with.String(), line, "", 1); got == with.String() || got != without.String() {
		t.Errorf("%s\nwithout the penalty:\n%s", with.String(), without.String())
	}
}
