package plaintext

import (
	"strings"
	"testing"
)

func TestWhatIsShownIsHarmless(t *testing.T) {
	for s, want := range map[string]string{
		"plain ü 日本": "plain ü 日本", "a\x1b[31mb": `a\x1b[31mb`, "a\nb\tc": `a\nb\tc`, "\u009b2J": `\u009b2J`, "a\u202eb": `a\u202eb`,
		"\xff\ufffd": `\xff` + "\ufffd", "\u2028": `\u2028`, strings.Repeat("é", 50): strings.Repeat("é", 20) + "…",
	} {
		if got := Line(s, 40); got != want {
			t.Errorf("%q is shown as %q, want %q", s, got, want)
		}
	}
}
