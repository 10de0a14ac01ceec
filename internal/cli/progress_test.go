package cli

import (
	"bytes"
	"testing"
	"time"
)

func TestTheLinesBelowABarFitTheTerminal(t *testing.T) {
	for width, want := range map[int]string{
		200: "budget spent, next window in 42 s\nsending\n",
		30:  "budget spent, next window in…\nsending\n",
		2:   "…\n…\n", 0: "…\n…\n",
	} {
		if got := cut([]string{"budget spent, next window in 42 s", "sending"}, width); got != want {
			t.Errorf("%d columns: %q, want %q", width, got, want)
		}
	}
}

func TestProgressWithoutATerminalPrintsLinesAlone(t *testing.T) {
	var out bytes.Buffer
	p := NewProgress(&out)
	if p.OnTerminal() {
		t.Fatal("a buffer passes for a terminal")
	}
	p.Start(2, View{Left: func(int) string { return "left" }})
	p.Set(1, 2)
	p.Print("1 of 2\n")
	p.End()
	p.End()
	p.Print("after the end\n")
	if got, want := out.String(), "1 of 2\nafter the end\n"; got != want {
		t.Errorf("printed %q, want %q", got, want)
	}
}

func TestTimeLeftIsRoundedUp(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0 s", 0: "0 s", time.Millisecond: "1 s", 60 * time.Second: "1 min 0 s", 2*time.Hour + 3*time.Minute: "2 h 3 min",
	} {
		if got := TimeLeft(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}
