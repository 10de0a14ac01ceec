package weir

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Reading names the place of a number in an HTTP message: "header:NAME" is a field, "json:PATH" a
// member of a JSON body, whose path has dots, as in usage.total_tokens. The zero value is none.
type Reading struct {
	Form ReadingForm
	Name string // in canonical form
}

// A ReadingForm is the kind of place that a Reading names.
type ReadingForm uint8

const (
	// ReadHeader reads the value of a field.
	ReadHeader ReadingForm = iota + 1
	// ReadJSON reads a member of a JSON body, or of the last event of an event stream that has it.
	ReadJSON
)

// ReadingForms are the forms of a Reading, for help and documentation.
const ReadingForms = "header:NAME and json:PATH"

// ParseReading parses a Reading as a policy spells it, such as json:usage.total_tokens.
func ParseReading(s string) (Reading, error) {
	base, name, _ := strings.Cut(s, ":")
	switch base {
	case "header":
		name, err := spelledField(name)
		if err == nil && connectionFields[name] {
			err = fmt.Errorf("the field %s is about the connection or the message, and tells no cost", name)
		}
		if err != nil {
			return Reading{}, fmt.Errorf("%q: %w", s, err)
		}
		return Reading{ReadHeader, name}, nil
	case "json":
		if err := pathProblem(name); err != nil {
			return Reading{}, fmt.Errorf("%q: %w", s, err)
		}
		return Reading{ReadJSON, name}, nil
	}
	return Reading{}, fmt.Errorf("%q: %s are allowed", s, ReadingForms)
}

// The max number of names in the path of a Reading, and of its bytes.
const (
	maxPath      = 8
	maxPathBytes = 128
)

func pathProblem(path string) error {
	names := strings.Split(path, ".")
	if len(names) > maxPath || len(path) > maxPathBytes {
		return fmt.Errorf("a path has at most %d names and %d bytes", maxPath, maxPathBytes)
	}
	for _, name := range names {
		if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == '"' || r == '\\' || r == 0x7f || r == 0xfffd }) {
			return errors.New("a path is names joined by dots, without blanks and quotes, such as usage.total_tokens")
		}
	}
	return nil
}

// String returns the reading as a policy spells it. It is empty for the zero value.
func (r Reading) String() string {
	switch r.Form {
	case ReadHeader:
		return "header:" + r.Name
	case ReadJSON:
		return "json:" + r.Name
	}
	return ""
}

// A Reserve is what a request reports of its own cost: the units that are charged before it is
// served are Times what is read and Plus, at most Limiter.Cost, at least 1. The zero value reserves
// Limiter.Cost. So does a request that reports nothing, or not a whole number from 0. If From is
// set, no window is charged more than the caller's limit of it, which a plan, an override or a
// grant may set lower.
type Reserve struct {
	From  Reading
	Times int64 // 0 means 1
	Plus  int64
}

// A Reporter has what a request reports of its own cost. One goroutine uses it while the request is
// decided.
type Reporter interface {
	// Reported returns the number at a place in the request. ok is false if the request has none
	// there, or cannot be read for it. It may wait for the request's body.
	Reported(from Reading) (n int64, ok bool)
	// Waits reports whether Reported would wait for the request's body. It is false once the body
	// was read.
	Waits(from Reading) bool
}

// Units returns what is reserved for a request that reports n, of a limiter with the given cost.
func (r Reserve) Units(n, cost int64) int64 {
	times := max(r.Times, 1)
	if n < 0 || n > (MaxLimit-r.Plus)/times {
		return cost
	}
	return min(max(n*times+r.Plus, 1), cost)
}

// A Count is which requests a limiter counts, by the status of their answer. All are counted while
// they are served, so a limit holds at any time. What is not counted is given back then. The zero
// value counts all.
type Count struct {
	Not      bool // count all but Statuses
	Statuses []Statuses
}

// Statuses are the statuses from Low to High.
type Statuses struct{ Low, High int }

// MaxStatuses is the max number of elements of Count.Statuses.
const MaxStatuses = 32

// Counts reports whether a request with this status is counted. Status 0 is counted always: it is
// that of a request that got no answer.
func (c *Count) Counts(status int) bool {
	if len(c.Statuses) == 0 || status == 0 {
		return true
	}
	for _, s := range c.Statuses {
		if s.Low <= status && status <= s.High {
			return !c.Not
		}
	}
	return c.Not
}

// String describes what is counted: "status 401, 403", "not 5xx", or "" for all.
func (c *Count) String() string {
	if len(c.Statuses) == 0 {
		return ""
	}
	all := make([]string, len(c.Statuses))
	for i, s := range c.Statuses {
		all[i] = s.String()
	}
	if c.Not {
		return "not " + strings.Join(all, ", ")
	}
	return "status " + strings.Join(all, ", ")
}

// ParseStatuses parses statuses as a policy spells them: 401, or 5xx for 500 to 599.
func ParseStatuses(s string) (Statuses, error) {
	if len(s) == 3 && s[1:] == "xx" && '1' < s[0] && s[0] < '6' {
		low := int(s[0]-'0') * 100
		return Statuses{low, low + 99}, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || len(s) != 3 || n < 200 || n > 599 {
		return Statuses{}, fmt.Errorf("status %q: 200 to 599, and 2xx to 5xx are allowed", s)
	}
	return Statuses{n, n}, nil
}

// String returns the statuses as a policy spells them.
func (s Statuses) String() string {
	if s.High == s.Low+99 && s.Low%100 == 0 {
		return strconv.Itoa(s.Low/100) + "xx"
	}
	return strconv.Itoa(s.Low)
}

// An InFlight is a limit on the requests of one caller that are under way (D29). Each holds a slot
// from its admission to its end. The zero value is no limit.
type InFlight struct {
	Limit int64 // 1 to MaxLimit
	Key   Key
}

const inFlightForm = "in_flight is LIMIT by KEY, such as: 10 by session"

// ParseInFlight parses an InFlight as a policy spells it: LIMIT by KEY.
func ParseInFlight(s string) (InFlight, error) {
	head, by, found := strings.Cut(s, " by ")
	if !found {
		return InFlight{}, fmt.Errorf("in_flight %q: %s", s, inFlightForm)
	}
	limit, err := parseCount(strings.TrimSpace(head))
	if err != nil {
		return InFlight{}, fmt.Errorf("in_flight %q: limit %q %w", s, head, err)
	}
	key, err := ParseKey(by)
	if err != nil {
		return InFlight{}, fmt.Errorf("in_flight %q: %w", s, err)
	}
	return InFlight{limit, key}, nil
}

// String returns the limit as a policy spells it.
func (f InFlight) String() string { return fmt.Sprintf("%d by %v", f.Limit, f.Key) }

// Rows returns what a request is charged to: Windows, and after them InFlight as a Window without a
// length, if it is set.
func (l *Limiter) Rows() []Window {
	if l.InFlight.Limit == 0 && l.InFlight.Key == nil {
		return l.Windows
	}
	return append(slices.Clip(l.Windows), Window{Limit: l.InFlight.Limit, Key: l.InFlight.Key, InFlight: true})
}

// Settles reports whether the limiter changes after its answer what a request has spent, or holds a
// slot for it.
func (l *Limiter) Settles() bool { return l.awaits() != 0 }

// SettlesUnits reports whether the answer to a request changes what it has spent.
func (l *Limiter) SettlesUnits() bool { return l.awaits()&(AwaitsStatus|AwaitsCost) != 0 }

func (l *Limiter) awaits() (a Awaits) {
	if len(l.Count.Statuses) > 0 {
		a |= AwaitsStatus
	}
	if l.Actual != (Reading{}) {
		a |= AwaitsCost
	}
	if l.InFlight.Limit > 0 {
		a |= AwaitsEnd
	}
	return a
}

// costWord is what Cost is in a policy.
func (l *Limiter) costWord() string {
	switch {
	case l.Reserve.From != (Reading{}):
		return "at_most"
	case l.Actual != (Reading{}):
		return "reserve"
	}
	return "cost"
}

func (c *checker) checkSettling(l *Limiter) {
	for i, s := range l.Count.Statuses {
		if again, err := ParseStatuses(s.String()); err != nil || again != s {
			c.add("count", i, s.String(), "count of %d to %d: one status from 200 to 599, or a class from 2xx to 5xx, is allowed", s.Low, s.High)
		}
	}
	if n := len(l.Count.Statuses); n > MaxStatuses {
		c.add("count", -1, "", "count has %d statuses: at most %d are allowed", n, MaxStatuses)
	}
	c.checkReading("cost", l.Actual)
	c.checkReading("cost", l.Reserve.From)
	r := &l.Reserve
	if r.Times < 0 || r.Times > MaxLimit || r.Plus < 0 || r.Plus > MaxLimit {
		c.add("cost", -1, "", "reserve: times %d and plus %d are out of range: 0 to %d is allowed", r.Times, r.Plus, MaxLimit)
	}
	if r.From == (Reading{}) && *r != (Reserve{}) {
		c.add("cost", -1, "", "reserve: times and plus need from: it says where the request tells its cost: %s", ReadingForms)
	}
	if r.From != (Reading{}) && l.Cost == 0 {
		c.add("cost", -1, "", "reserve: from %v needs a Cost: the most that is reserved, also for a request that does not tell", r.From)
	}
	if l.Answers != AnswerBackend && l.Settles() {
		settled := l.settledFields()
		c.add("answers", -1, l.Answers.String(), "answers %v: there is no answer of a backend, which is needed for %s; remove %s, or answers", l.Answers, settled, settled)
	}
}

// settledFields names the fields by which the limiter settles, as a policy has them.
func (l *Limiter) settledFields() string {
	var fields []string
	if len(l.Count.Statuses) > 0 {
		fields = append(fields, "count")
	}
	if l.Actual != (Reading{}) {
		fields = append(fields, "cost from "+l.Actual.String())
	}
	if l.InFlight.Limit > 0 {
		fields = append(fields, "in_flight")
	}
	return strings.Join(fields, " and ")
}

func (c *checker) checkReading(field string, r Reading) {
	if r == (Reading{}) {
		return
	}
	if again, err := ParseReading(r.String()); err != nil {
		c.add(field, -1, r.String(), "%s from %v", field, err)
	} else if again != r {
		c.add(field, -1, r.String(), "%s from %q: write it as %q, so that one field has one spelling", field, r, again)
	}
}

// settlingProblems returns the problems of a policy under a store that is no Settler.
func settlingProblems(p Policy) []Problem {
	c := checker{}
	for c.limiter = range p.Limiters {
		if l := &p.Limiters[c.limiter]; l.Settles() {
			c.add("", -1, "", "in_flight, count and a cost from the answer need a store that can give units back (weir.Settler), and this one cannot")
		}
	}
	return c.problems
}
