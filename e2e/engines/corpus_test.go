package engines

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// quiets are the lengths of silence after which a server counts as waiting for
// input. On a busy machine the guess may be wrong, so a difference is checked again
// with a longer one.
var quiets = []time.Duration{30 * time.Millisecond, 300 * time.Millisecond, 2 * time.Second}

// pieces returns a case's stream with the farewell, with each part split by cut.
func (c *testCase) pieces(cut func(string) []string) []string {
	var all []string
	for i, part := range c.parts {
		if i > 0 {
			all = append(all, pause)
		}
		if i == len(c.parts)-1 {
			part += farewell
		}
		all = append(all, cut(part)...)
	}
	return all
}

// whole returns a stream as one piece.
func whole(stream string) []string { return []string{stream} }

// scattered returns a stream in random pieces.
func scattered(stream string, r *rand.Rand) []string {
	var pieces []string
	for len(stream) > 0 {
		n := 1 + r.IntN(min(len(stream), 1+r.IntN(200)))
		pieces = append(pieces, stream[:n])
		stream = stream[n:]
	}
	return pieces
}

// bookkeeping are the fields that nginx omits, or formats differently.
var bookkeeping = map[string]bool{
	"x-forwarded-for": true, "x-forwarded-proto": true, "x-forwarded-host": true, // not added
	// nor of these
	"x-ratelimit-limit": true, "x-ratelimit-remaining": true, "x-ratelimit-reset": true, "retry-after": true,
	"connection": true, "keep-alive": true, "server": true, "date": true,
	// if a body is complete, it sends a length
	"content-length": true, "transfer-encoding": true,
}

func every(string) bool       { return true }
func substance(n string) bool { return !bookkeeping[n] }

// compare sends a case to all subjects, more slowly each time, until all outcomes
// are as expected. It returns the remaining problems.
func (c *testCase) compare(t *testing.T, ours []*subject, nginx *subject, pieces []string) (problems []string) {
	t.Helper()
	for _, quiet := range quiets {
		problems = nil
		var first *outcome
		for _, s := range ours {
			o := s.send(t, pieces, quiet)
			if first == nil {
				first = o
			}
			problems = append(problems, c.judge(s.name, o.withoutItsWords(), first.withoutItsWords(), every)...)
		}
		o := nginx.send(t, pieces, quiet)
		problems = append(problems, c.judge(nginx.name, o.passedOn(), first.passedOn(), substance)...)
		if len(problems) == 0 {
			return nil
		}
	}
	return problems
}

// judge compares an outcome with the case, and with the first engine's outcome. A
// difference needs a row that explains it, and a row needs a difference.
func (c *testCase) judge(name string, o, first *outcome, keep func(string) bool) (problems []string) {
	want, excepted := c.want, false
	if e, ok := c.except[name]; ok {
		want, excepted = e.want, true
	}
	if got := o.summary(); got != want {
		return []string{name + ": " + got}
	}
	if want != c.want {
		return nil
	}
	differences := differ(first.detail(keep), o.detail(keep), "the first engine", name)
	switch {
	case excepted && differences == "":
		return []string{name + " does the same as the others: the row is wrong"}
	case !excepted && differences != "":
		return []string{name + " differs:" + differences}
	}
	return nil
}

func TestTheEnginesAndNginxAgree(t *testing.T) {
	ours := make([]*subject, 0, len(engines))
	for _, e := range engines {
		ours = append(ours, newGateway(t, e.name, e.engine, answers))
	}
	nginx := newNginx(t, answers)
	r := rand.New(rand.NewPCG(1, 2))
	for _, c := range readCases(t) {
		t.Run(c.name, func(t *testing.T) {
			ways := [][]string{c.pieces(whole)}
			if !c.once {
				ways = append(ways, c.pieces(func(part string) []string { return scattered(part, r) }))
			}
			for _, pieces := range ways {
				for _, problem := range c.compare(t, ours, nginx, pieces) {
					t.Errorf("%s: %s\nwant %s", c.file, problem, c.want)
				}
			}
		})
	}
}

// An upstream may answer before it has read the whole request. The rest of the
// request and the end of the connection are then random; the answer is not.
func TestAnEarlyAnswerArrives(t *testing.T) {
	for _, e := range engines {
		s := newGateway(t, e.name, e.engine, answers)
		for _, n := range []int{5, 1 << 20} {
			stream := fmt.Sprintf("POST /early HTTP/1.1\r\nHost: example.com\r\nContent-Length: %d\r\n\r\n%s", n, strings.Repeat("x", n))
			o := s.send(t, whole(stream+farewell), quiets[len(quiets)-1])
			if len(o.answers) == 0 || o.answers[0].status() != 200 || o.answers[0].body != "early\n" {
				t.Errorf("%s, a body of %d bytes: %s", e.name, n, o.summary())
			}
			if wrong := o.safety(); wrong != "" {
				t.Errorf("%s, a body of %d bytes: %s", e.name, n, wrong)
			}
		}
	}
}
