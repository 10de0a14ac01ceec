package policyfile

import (
	"regexp"
	"strings"

	"github.com/weirlimit/weir"
)

// penalty returns the penalty of a limiter, the zero value if it has none that is usable.
func (d *reading) penalty(p *penalty, path string) weir.Penalty {
	if path += ".penalty"; !d.written(path) {
		return weir.Penalty{}
	}
	var out weir.Penalty
	var err error
	if at := path + ".after"; d.written(at) {
		if out.After, out.Per, err = weir.ParseRefusals(string(p.After)); err != nil {
			d.fail(at, string(p.After), refusalsHint(string(p.After)), "%v", err)
		}
	}
	if at := path + ".refuse_for"; d.written(at) {
		if out.For, err = weir.ParseRefuseFor(string(p.RefuseFor)); err != nil {
			d.fail(at, string(p.RefuseFor), lengthHint(string(p.RefuseFor)), "%v", err)
		}
	}
	if !d.written(path+".after") || !d.written(path+".refuse_for") {
		return weir.Penalty{}
	}
	return out
}

// refusalsHint returns advice on a number of refusals that cannot be parsed, or "" if the error is
// enough.
func refusalsHint(s string) string {
	if n, rest, ok := strings.Cut(strings.TrimSpace(s), " per "); ok {
		n, _, _ = strings.Cut(n, " ")
		meant := n + " refusals per " + strings.TrimSpace(rest)
		if _, _, err := weir.ParseRefusals(meant); err == nil {
			return "write " + meant
		}
	}
	return ""
}

// shortLength matches a length as Go and other products write it, such as 15m.
var shortLength = regexp.MustCompile(`^([0-9]+) ?(s|sec|secs|m|min|mins|h|hr|hrs|d)$`)

// lengthHint returns advice on a length that cannot be parsed, or "" if the error is enough.
func lengthHint(s string) string {
	m := shortLength.FindStringSubmatch(strings.TrimSpace(s))
	if m == nil {
		return ""
	}
	unit := map[byte]string{'s': "seconds", 'm': "minutes", 'h': "hours", 'd': "days"}[m[2][0]]
	return "write " + m[1] + " " + unit
}

// penalty warns of a penalty that counts by what callers choose.
func (w *warner) penalty(path string, l weir.Limiter) {
	const hint = "put a window by ip first"
	key := l.Windows[0].Key
	if source := w.chosenAlone(key); source != "" {
		w.warn(path+".penalty", "", hint,
			"the penalty counts by %s, which the caller chooses: anybody who sends the same value can have another caller refused, and a new value ends a penalty", key)
	} else if source := w.invented(&l, key); source != "" {
		w.warn(path+".penalty", "", hint, "the penalty counts by %s, and the caller chooses its %s: a new value ends a penalty", key, source)
	}
}
