package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/internal/admin"
	"github.com/weirlimit/weir/internal/admin/client"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/plaintext"
)

// A grantEnd is when a grant ends, as --for or --until say.
type grantEnd struct{ lasts, until string }

const endExamples = "such as --for 2h or --until 18:00"

// add adds the end to the body of a grant. wanted is whether the grant has one: if not, an end is
// an error.
func (e grantEnd) add(body map[string]any, wanted bool, now time.Time) error {
	switch {
	case !wanted && e.lasts+e.until != "":
		return cli.UsageError("leave --for and --until out", "--limit none ends the grants now, so it has no --for or --until")
	case !wanted:
		return nil
	case e.lasts != "" && e.until != "":
		return cli.UsageError(endExamples, "give either --for or --until")
	case e.lasts != "":
		if err := checkLasts(e.lasts); err != nil {
			return cli.UsageError(endExamples, "--for %q: %w", e.lasts, err)
		}
		body["for"] = e.lasts // counted from the store's clock
	case e.until != "":
		if _, err := time.ParseDuration(e.until); err == nil {
			return cli.UsageError("--for "+e.until, "--until %q is a duration, and a time is expected", e.until)
		}
		at, err := parseUntil(e.until, now)
		if err != nil {
			return cli.UsageError("see 'weir key grant --help'", "--until %q: %w", e.until, err)
		}
		body["until"] = at.Unix()
	default:
		return cli.UsageError(endExamples, "--for or --until is missing: every grant has an end")
	}
	return nil
}

// checkLasts returns an error for a text that is not the duration of a grant.
func checkLasts(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil || d < time.Second || d > admin.MaxGrant {
		return fmt.Errorf("expected a duration from 1s to %dh (366 days), such as 90m, 2h or 720h", int(admin.MaxGrant.Hours()))
	}
	return nil
}

// parseUntil returns a time of today or any other.
func parseUntil(s string, now time.Time) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339, s); err == nil {
		return at, nil
	}
	for _, layout := range []string{"15:04", "15:04:05"} {
		at, err := time.ParseInLocation(layout, s, now.Location())
		if err != nil {
			continue
		}
		at = time.Date(now.Year(), now.Month(), now.Day(), at.Hour(), at.Minute(), at.Second(), 0, now.Location())
		if !at.After(now) {
			return time.Time{}, fmt.Errorf("that time has passed today; for another day give the date too, such as %s", at.AddDate(0, 0, 1).Format(time.RFC3339))
		}
		return at, nil
	}
	return time.Time{}, fmt.Errorf("expected a time of today such as 18:00, or a time such as %s", now.Add(2*time.Hour).Format(time.RFC3339))
}

// warnOfEarlyEnd warns of each window that resets after its grant has ended. answer is the
// server's answer to a grant.
func warnOfEarlyEnd(cmd *cobra.Command, answer []byte) {
	var k admin.CallerWindows
	if client.Decode(answer, &k) != nil {
		return // whoever prints the answer reports it
	}
	for _, w := range k.Windows {
		if w.Grant == nil || !w.EndsEarly {
			continue
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: the grant ends at %s, before the window %q of %s resets: what the caller spends beyond %d counts until that reset\n",
			clockTime(w.Grant.Until), plaintext.Line(w.Window, 200), plaintext.Line(w.Limiter, 80), w.Declared)
	}
}
