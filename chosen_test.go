package weir

import (
	"strings"
	"testing"
)

// A value that the caller chooses subdivides something that it does not choose, or the limiter says
// that this is meant (D32).
func TestAChosenValueDividesAnotherOrIsDeclared(t *testing.T) {
	const ok, rejected, needless = "", "which the caller chooses", "remove it"
	for _, c := range []struct {
		key, without, with string // the problem without and with chosen: yes
	}{
		{"ip", ok, needless},
		{"session or ip", ok, needless},
		{"claim:org or ip", ok, needless},
		{"everyone", ok, needless},
		{"agent", rejected, ok},
		{"header:X-Api-Key", rejected, ok},
		{"header:X-Api-Key or ip", rejected, ok},
		{"session or header:X-Api-Key", rejected, ok},
		{"host", rejected, ok},
		{"cookie:sid+query:tenant", rejected, ok},
		{"agent+host or ip", rejected, ok},
		{"host+session or agent", rejected, ok},
		{"host+session or everyone", rejected, ok},
		{"ip+agent", ok, ok},
		{"host+ip", ok, ok},
		{"session+query:tenant", ok, ok},
		{"cookie:sid or ip+claim:org", ok, ok},
		{"token or ip+header:X-A or cookie:b", ok, ok},
	} {
		w, err := ParseWindow("5 per minute by " + c.key)
		if err != nil {
			t.Fatal(err)
		}
		p := Policy{Limiters: []Limiter{{Name: "l", Windows: []Window{w}}}}
		for _, chosen := range []bool{false, true} {
			p.Limiters[0].Chosen = chosen
			want, field := c.without, "windows"
			if chosen {
				want, field = c.with, "chosen"
			}
			problems := p.Problems(Sources())
			if want == "" && len(problems) > 0 || want != "" && (len(problems) != 1 || !strings.Contains(problems[0].Message, want) || problems[0].Field != field) {
				t.Errorf("%s, chosen %v: %v, want %q", c.key, chosen, problems, want)
			}
			if problems := p.Problems(nil); len(problems) > 0 {
				t.Errorf("%s, chosen %v: judged without a table of sources: %v", c.key, chosen, problems)
			}
		}
	}
}

// Each window is judged by itself: one that bounds the caller does not allow another that it
// evades.
func TestAWindowByIPDoesNotAllowOneByAChosenValue(t *testing.T) {
	var windows []Window
	for _, text := range []string{"5 per minute by ip", "9 per hour by ip+agent", "90 per day by header:X-Api-Key"} {
		w, err := ParseWindow(text)
		if err != nil {
			t.Fatal(err)
		}
		windows = append(windows, w)
	}
	problems := Policy{Limiters: []Limiter{{Name: "l", Windows: windows}}}.Problems(Sources())
	if len(problems) != 1 || problems[0].Index != 2 || problems[0].Value != "header:X-Api-Key" {
		t.Errorf("%+v", problems)
	}
	for _, way := range []string{"new budget", "another caller's", "ip+header:X-Api-Key", `"chosen: yes"`} {
		if len(problems) > 0 && !strings.Contains(problems[0].Message, way) {
			t.Errorf("the problem does not mention %s: %s", way, problems[0].Message)
		}
	}
}
