package policyfile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
)

// settling warns of what is surprising in cost, count and in_flight of a limiter.
func (w *warner) settling(path string, l *weir.Limiter) {
	w.cost(path+".cost", l)
	if len(l.Count.Statuses) > 0 {
		w.count(path+".count", l)
	}
	if at := path + ".in_flight"; l.InFlight.Key.Uses(identity.Everyone) {
		w.warn(at, "", "count by a caller's key, such as: "+weir.InFlight{Limit: l.InFlight.Limit, Key: weir.Key{{identity.IP}}}.String()+", unless that is meant",
			"%d in flight by everyone: one caller whose requests take long can hold all of them", l.InFlight.Limit)
	}
}

func (w *warner) cost(path string, l *weir.Limiter) {
	told := l.Actual != (weir.Reading{})
	counts := func(x weir.Window) bool { return !x.Requests }
	if (told || l.Cost > 1) && !slices.ContainsFunc(l.Windows, counts) {
		w.warn(path, "", "leave it out, or add a window that counts units, such as: 1000 per day by ip", "cost has no effect: no window of limiter %q counts units", l.Name)
		return
	}
	if told && (l.Cost == 0 || l.Cost == 1 && l.Actual.Form == weir.ReadJSON) {
		w.warn(path+".from", "", fmt.Sprintf("reserve the most that one can cost, such as: {reserve: 4000, from: %v}", l.Actual),
			"a request is charged 1 until its response tells what it has cost: those that are under way together can pass the limit by all that they cost")
	}
	if from := l.Reserve.From; from == (weir.Reading{}) && told {
		w.roomForOne(path, l)
	} else if from.Form == weir.ReadJSON && len(l.Routes) > 0 && !slices.ContainsFunc(l.Routes, hasBody) {
		w.warn(path+".reserve.from", "", "write a number, or read a field: header:NAME",
			"requests of these routes have no body that %v could be read from: each reserves %d", from, l.Cost)
	}
	if l.Reserve.Plus == 0 && l.Cost > 1 && asksForAnswer(l.Reserve.From) && tellsAll(l.Actual) {
		w.warn(path+".reserve", "", "add the most that a prompt has, such as: {from: "+l.Reserve.From.String()+", plus: 2000, at_most: …}",
			"%v bounds the answer alone, and %v has the prompt as well: requests that are under way together can pass the limit by their prompts", l.Reserve.From, l.Actual)
	}
	w.literalPath(path+".from", l.Actual)
	w.literalPath(path+".reserve.from", l.Reserve.From)
}

// asksForAnswer reports whether a request to a language model tells there how long the answer may
// be.
func asksForAnswer(at weir.Reading) bool {
	return at.Form == weir.ReadJSON && slices.Contains([]string{"maxtokens", "maxcompletiontokens", "maxoutputtokens", "maxnewtokens"}, plainWord(lastField(at.Name)))
}

// tellsAll reports whether the answer of a language model tells there the tokens of the prompt and
// of the answer together.
func tellsAll(at weir.Reading) bool {
	return at.Form == weir.ReadJSON && slices.Contains([]string{"totaltokens", "totaltokencount"}, plainWord(lastField(at.Name)))
}

// roomForOne warns of a window in which one request reserves so much that a second has no room.
func (w *warner) roomForOne(path string, l *weir.Limiter) {
	for _, x := range l.Windows {
		if !x.Requests && l.Cost > 1 && l.Cost > x.Limit/2 {
			w.warn(w.costPath(path), "", fmt.Sprintf("reserve at most %d, or raise the limit", max(x.Limit/2, 1)),
				"%q has room for one reservation of %d: a second request is refused until the response to the first has told its cost", x, l.Cost)
			return
		}
	}
}

// hasBody reports whether requests of a route can have a body with a meaning.
func hasBody(r weir.Route) bool {
	return !slices.Contains([]string{"GET", "HEAD", "OPTIONS", "TRACE"}, r.Method)
}

// literalPath warns of a place in JSON that is spelled as in a query language.
func (w *warner) literalPath(path string, at weir.Reading) {
	if at.Form == weir.ReadJSON && strings.ContainsAny(at.Name, "[]*$?@") {
		w.warn(path, at.Name, "write the names of members, joined by dots, such as: json:usage.total_tokens",
			"%v names a member that is spelled so: a path has no indexes and no wildcards", at)
	}
}

func (w *warner) count(path string, l *weir.Limiter) {
	switch counted, all := countedOf(&l.Count); {
	case len(l.Windows) == 0:
		w.warn(path, "", "leave it out, or add a window", "count has no effect: limiter %q has no window, and a request in flight is counted whatever its status will be", l.Name)
	case counted == 0:
		w.warn(path, "", "use in_flight to limit what is under way", "count leaves no status: every request is given back when its response begins")
	case counted == all:
		w.warn(path, "", "leave it out", "count has every status: nothing is ever given back")
	}
	if status := cmp.Or(w.policy.Answers.Unauthenticated.Status, 401); l.Requires != "" && !l.Count.Counts(status) {
		w.warn(path, "", fmt.Sprintf("count %d too", status),
			"requests without a verified %s are answered %d, which is not counted: a caller may try any number of credentials", l.Requires, status)
	}
	for i, s := range l.Count.Statuses {
		at := w.countPath(l, weir.Problem{Limiter: w.index, Index: i})
		if s.Low == 429 && s.High == 429 && !l.Count.Not {
			w.warn(at, s.String(), "penalty is what becomes of callers that are refused often",
				"429 is counted only if the backend answers it: a request that Weir refuses spends nothing")
		}
		for _, other := range l.Count.Statuses {
			if other != s && other.Low <= s.Low && s.High <= other.High {
				w.warn(at, s.String(), "leave one of the two out", "%v is one of %v", s, other)
			}
		}
	}
}

// countedOf returns how many of all statuses are counted.
func countedOf(c *weir.Count) (counted, all int) {
	for status := 200; status <= 599; status++ {
		if all++; c.Counts(status) {
			counted++
		}
	}
	return counted, all
}
