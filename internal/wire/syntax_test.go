package wire

import (
	"strings"
	"testing"
)

// Every byte at every place of a step of eight, and behind the last step: what is looked at in
// eights is what the table says.
func TestStepsOfEightFindWhatATableFinds(t *testing.T) {
	ends := map[string]struct {
		end  func(string, int) int
		part func(c int) bool
	}{
		"a name":   {nameEnd, func(c int) bool { return classes[c]&inToken != 0 }},
		"a value":  {valueEnd, func(c int) bool { return classes[c]&inValue != 0 }},
		"a target": {func(s string, i int) int { return plain(s, i, '!') }, func(c int) bool { return c > 0x20 && c != 0x7f }},
	}
	for what, e := range ends {
		for _, filling := range []string{"a", "-", "Z", "~", "\xff"} {
			if !e.part(int(filling[0])) {
				continue
			}
			for length := range 25 {
				for at := range length {
					for c := range 256 {
						s := strings.Repeat(filling, at) + string([]byte{byte(c)}) + strings.Repeat(filling, length-at-1)
						want := length
						if !e.part(c) {
							want = at
						}
						if got := e.end(s, min(at, 3)); got != want {
							t.Fatalf("%s: %q ends at %d, want %d", what, s, got, want)
						}
					}
				}
			}
		}
	}
}

func TestTokensAreTheStandards(t *testing.T) {
	// tchar are the characters of a token (RFC 9110, section 5.6.2).
	const tchar = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	for c := range 256 {
		s := string([]byte{byte(c)})
		if got, want := IsToken(s), strings.Contains(tchar, s); got != want {
			t.Errorf("%q is a token: %v, want %v", s, got, want)
		}
	}
	if IsToken("") || IsToken("a b") || !IsToken("a-b") {
		t.Error("a token has at least one byte, and no blank")
	}
}

func TestLettersAloneAreFolded(t *testing.T) {
	for a := range 256 {
		for b := range 256 {
			x, y := string([]byte{byte(a)}), string([]byte{byte(b)})
			if got, want := EqualFold(x, y), a == b || a < 0x80 && b < 0x80 && strings.EqualFold(x, y); got != want {
				t.Fatalf("%q and %q are equal: %v, want %v", x, y, got, want)
			}
		}
	}
	if EqualFold("Kelvin", "\u212aelvin") || EqualFold("a", "ab") {
		t.Error("only letters of ASCII are folded")
	}
}

func TestParseDoesNotAllocate(t *testing.T) {
	var q Request
	var s Response
	if n := testing.AllocsPerRun(100, func() {
		if q.Parse(usualHead) != nil || s.Parse(usualAnswer, "GET") != nil || q.Names("Upgrade") {
			t.Fatal("refused")
		}
	}); n != 0 {
		t.Errorf("two heads allocate %v times", n)
	}
}
