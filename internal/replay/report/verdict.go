package report

import (
	"fmt"
	"strings"

	"github.com/weirlimit/weir/internal/replay"
)

// Sentence summarizes the result in one sentence: if there is a second policy, what it changes. The
// sentence also says if the figures are less reliable than they seem: if only a part of the log was
// read, a window is unknown, or memory was too small.
func Sentence(r *replay.Report) string {
	begin := ""
	if r.Partial != "" {
		begin = "Only a part of the log was read: "
	}
	o := last(r)
	switch {
	case o.Requests == 0:
		return begin + capital(begin == "", "there is no request in the log.")
	case Crowded(r):
		return begin + capital(begin == "", "what would have been refused is unknown, since there was too little memory: give more --memory.")
	case !Covers(o):
		return begin + capital(begin == "", fmt.Sprintf("no limiter of %s covers any of %s.", Shown(o.Name, 60), many(o.Requests, "request")))
	}
	if r.Difference != nil && r.Against != nil {
		return begin + capital(begin == "", changed(r)+unsure(r, r.Difference.NewlyRefused, r.Difference.Unknown)+".")
	}
	return begin + capital(begin == "", refusals(o)+unsure(r, o.Refused, o.Unknown)+".")
}

// refusals describes what one policy would have refused.
func refusals(o *replay.Outcome) string {
	if o.Refused == 0 {
		return fmt.Sprintf("under %s none of %s would have been refused", Shown(o.Name, 60), many(o.Requests, "request")) + tried(o)
	}
	how := "would have been refused"
	if o.Delay != nil {
		how += " at first"
	}
	return fmt.Sprintf("under %s %s of %s (%s) from %s %s%s%s", Shown(o.Name, 60), thousands(o.Refused), many(o.Requests, "request"), share(o.Refused, o.Requests),
		ofCallers(o.Touched), how, mostBy(refusedBy(o)), waited(o)) + tried(o)
}

// changed describes what the second policy refuses and the first does not.
func changed(r *replay.Report) string {
	d, o := r.Difference, r.Against
	from := fmt.Sprintf("from %s to %s ", Shown(r.Policy.Name, 60), Shown(o.Name, 60))
	admitted := ""
	if d.NewlyAdmitted > 0 {
		admitted = fmt.Sprintf(", and %s would have been admitted that are refused now", thousands(d.NewlyAdmitted))
	}
	if d.NewlyRefused == 0 {
		return from + fmt.Sprintf("none of %s would have been newly refused", many(o.Requests, "request")) + admitted
	}
	var by []amount
	for _, l := range d.Limiters {
		by = append(by, amount{changedName(l), l.NewlyRefused})
	}
	return from + fmt.Sprintf("%s of %s (%s) would have been newly refused%s", thousands(d.NewlyRefused), many(o.Requests, "request"),
		share(d.NewlyRefused, o.Requests), mostBy(by)) + admitted
}

// An amount is a limiter's part of a number.
type amount struct {
	name string
	n    int64
}

func refusedBy(o *replay.Outcome) (all []amount) {
	for i := range o.Limiters {
		if l := &o.Limiters[i]; l.Mode != "shadow" {
			all = append(all, amount{Shown(l.Name, 40), l.Refused})
		}
	}
	return all
}

// mostBy names the limiter with the largest part, the first of several.
func mostBy(all []amount) string {
	var most amount
	others := false
	for _, a := range all {
		if a.n > most.n {
			others = others || most.n > 0
			most = a
		} else {
			others = others || a.n > 0
		}
	}
	switch {
	case most.n == 0:
		return ""
	case others:
		return ", most by " + most.name
	}
	return ", all by " + most.name
}

// waited describes what happened to the requests that were refused at first.
func waited(o *replay.Outcome) string {
	d := o.Delay
	switch {
	case d == nil:
		return ""
	case d.Delayed == 0:
		return fmt.Sprintf("; %s gave up", thousands(d.GaveUp))
	}
	return fmt.Sprintf("; %s served after %s at most, %s gave up", thousands(d.Delayed), lasting(d.Max), thousands(d.GaveUp))
}

// tried describes what limiters in shadow would have refused in addition.
func tried(o *replay.Outcome) string {
	if o.Shadow.Refused == 0 {
		return ""
	}
	return fmt.Sprintf("; %s by limiters that are in shadow", thousands(o.Shadow.Refused))
}

// unsure describes what the figures leave out: requests that an unknown window may have refused,
// and other reasons for doubt. refused is the number of known refusals.
func unsure(r *replay.Report, refused, unknown int64) string {
	text := ""
	switch {
	case unknown == 0:
	case refused == 0:
		text += fmt.Sprintf("; whether %s would have been is unknown, since the log lacks their agent", thousands(unknown))
	default:
		text += fmt.Sprintf("; whether %s more would have been is unknown, since the log lacks their agent", thousands(unknown))
	}
	if r.Log.Dropped > 0 {
		text += fmt.Sprintf("; %s missing in the log", are(r.Log.Dropped, "request"))
	}
	if Disordered(r) {
		text += fmt.Sprintf("; %s came out of order, so this is not reliable", many(r.Log.OutOfOrder, "request"))
	}
	return text
}

// Disordered reports whether so many requests were too late to be put in order that the figures
// mean little.
func Disordered(r *replay.Report) bool { return r.Log.OutOfOrder > r.Log.Requests/1000 }

// Unknown reports whether a window has requests with an unknown agent: a window of one limiter, or
// of any if the name is empty. Then the figures may be wrong, because other windows do not count
// what the unknown window refuses.
func Unknown(o *replay.Outcome, limiter string) bool {
	for i := range o.Limiters {
		l := &o.Limiters[i]
		if limiter != "" && l.Name != limiter || limiter == "" && l.Mode == "shadow" {
			continue
		}
		for _, w := range l.Windows {
			if w.Unknown > 0 {
				return true
			}
		}
	}
	return false
}

// capital capitalizes a text if it begins a sentence.
func capital(begins bool, text string) string {
	if !begins {
		return text
	}
	return strings.ToUpper(text[:1]) + text[1:]
}
