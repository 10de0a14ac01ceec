package main

import (
	"bytes"
	"errors"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/docsync"
	"github.com/weirlimit/weir/internal/folder"
	"github.com/weirlimit/weir/pacer"
)

func TestProgressWithoutATerminalIsLines(t *testing.T) {
	var out bytes.Buffer
	p := newSyncProgress(&out)
	p.event(docsync.Read{Files: 3})
	p.event(docsync.SameURL{First: "a.md", Second: "a.html", URL: "https://x.example/a"})
	p.begin(3, 2, nil)
	p.event(docsync.Skipped{Problem: folder.Problem{Path: "a\x1b[2J.md", Reason: "it\nis bad", Hint: "mend it"}})
	in42 := time.Now().Add(41500 * time.Millisecond)
	for range 4 { // the number in flight
		p.wait(pacer.Wait{Reason: pacer.BudgetSpent, Until: in42})
		p.event(docsync.Retry{Reason: "it is down", After: time.Second})
	}
	p.event(docsync.Stored{Documents: 2})
	p.interrupted()
	p.end()
	p.interrupted()
	got := regexp.MustCompile(`\d+/s`).ReplaceAllString(out.String(), "N/s")
	if want := `warning: a.md and a.html have the same link, https://x.example/a; rename one, or give it a url in front matter
3 documents in 2 requests
bad file: a\x1b[2J.md: it\nis bad; mend it
budget spent, next window in 42 s
it is down; again in 1 s
2 of 2, 0 left, N/s
stopping: requests in flight may finish; interrupt again to end at once
`; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestTheLineBelowTheBarShowsWhyASyncWaits(t *testing.T) {
	p := newSyncProgress(&bytes.Buffer{})
	p.begin(1000, 10, func(int) time.Duration { return 3 * time.Minute })
	p.wait(pacer.Wait{Reason: pacer.BudgetSpent, Until: time.Now().Add(41500 * time.Millisecond)})
	want := []string{"budget spent, next window in 42 s · done in 3 min 0 s or more"}
	if got := p.below(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestASyncReportsOtherFilesOnlyIfThereAreAny(t *testing.T) {
	for _, c := range []struct {
		dry        cli.OnOff
		found, bad int
		want, hint string
	}{
		{false, 5, 2, "2 files could not be sent", "they are named above, with what to do about each; the others are up to date"},
		{false, 2, 2, "2 files could not be sent", "they are named above, with what to do about each"},
		{true, 5, 1, "1 file cannot be sent", "they are named above, with what to do about each"},
		{false, 50, 30, "30 files could not be sent", "the first 20 are named above; --json names all; the others are up to date"},
	} {
		flags := &syncFlags{dry: c.dry}
		var f *cli.Failure
		if err := flags.leftOut(c.bad, c.found); !errors.As(err, &f) || err.Error() != c.want || f.Hint != c.hint {
			t.Errorf("%+v: %v, %+v", c, err, f)
		}
	}
}
