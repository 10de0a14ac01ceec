package pacer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// A timeline is what happens to the budgets of one caller, step by step, and what follows from it.
// The tables in testdata have the form that its README describes; clients in other languages run
// them too.
type timeline struct {
	Name      string     `json:"name"`
	Clock     int64      `json:"clock,omitempty"` // local, Unix ms at the start; 0: tableClock
	Windows   []declares `json:"windows,omitempty"`
	Threshold *int64     `json:"threshold,omitempty"` // nil: the function Threshold
	Cost      int64      `json:"cost,omitempty"`      // 0: 1
	Steps     []step     `json:"steps"`
}

// tableClock is Fri, 15 Jan 2027 08:00:00 GMT.
const tableClock = 1_800_000_000_000

type declares struct {
	Limit   int64 `json:"limit"`
	Seconds int64 `json:"seconds"`
}

// A step is one event, and what the pacer has to make of it. Times are in milliseconds.
type step struct {
	At      int64  `json:"at"`
	Process int    `json:"process,omitempty"`
	Start   string `json:"start,omitempty"`
	Path    string `json:"path,omitempty"` // empty: /things
	Answer  string `json:"answer,omitempty"`
	Lost    string `json:"lost,omitempty"`
	Unsent  string `json:"unsent,omitempty"`
	Waiting *int   `json:"waiting,omitempty"`
	Status  int    `json:"status,omitempty"`
	Fields  sends  `json:"fields,omitempty"`
	leads
}

// leads is what a step has to lead to.
type leads struct {
	Verdict *says           `json:"verdict,omitempty"`
	Again   json.RawMessage `json:"again,omitempty"` // a number, or null
	Budget  []stands        `json:"budget,omitempty"`
}

// says is a verdict: "start", or a wait.
type says struct {
	Wait int64  `json:"wait"`
	Why  string `json:"why"`
}

func (v *says) UnmarshalJSON(b []byte) error {
	if string(b) == `"start"` {
		*v = says{}
		return nil
	}
	type plain says
	return strictly(b, (*plain)(v))
}

func (v *says) MarshalJSON() ([]byte, error) {
	if v.Why == "" {
		return []byte(`"start"`), nil
	}
	type plain says
	return json.Marshal((*plain)(v))
}

// stands is what is known of a window. What is nil is not compared.
type stands struct {
	Known     *bool  `json:"known,omitempty"`
	Limit     *int64 `json:"limit,omitempty"`
	Remaining *int64 `json:"remaining,omitempty"`
	InFlight  *int64 `json:"inFlight,omitempty"`
	Restored  *int64 `json:"restored,omitempty"`
}

// sends are the fields of a response: a string, or a list of strings for a field that is sent more
// than once.
type sends map[string]any

func (s sends) header() http.Header {
	h := http.Header{}
	for name, value := range s {
		switch value := value.(type) {
		case string:
			h.Add(name, value)
		case []any:
			for _, one := range value {
				h.Add(name, one.(string))
			}
		}
	}
	return h
}

// strictly decodes JSON, and returns an error for a key that does not exist.
func strictly(b []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("there is more after the value")
	}
	return nil
}

// table reads one of the tables.
func table[T any](t *testing.T, name string) (rows []T) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := strictly(b, &rows); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return rows
}

// A stage plays a timeline on Transports, without connections: one for each process.
type stage struct {
	of        *timeline
	at        int64 // ms
	shared    *states
	processes map[int]*Transport
	calls     map[string]*acting
}

// An acting call has started, and is not answered.
type acting struct {
	call
	pass
}

// states is a Shared view in memory.
type states map[string][]byte

func (s states) Update(key string, change func([]byte) []byte) error {
	s[key] = bytes.Clone(change(s[key]))
	return nil
}

// newStage returns a stage for a timeline. The processes share a view if there are several, or if
// that is forced.
func newStage(of *timeline, share bool) *stage {
	s := &stage{of: of, processes: map[int]*Transport{}, calls: map[string]*acting{}}
	for _, one := range of.Steps {
		share = share || one.Process != 0
	}
	if share {
		s.shared = &states{}
	}
	return s
}

func (s *stage) now() time.Time {
	clock := s.of.Clock
	if clock == 0 {
		clock = tableClock
	}
	return time.UnixMilli(clock + s.at)
}

// process returns the Transport of a process.
func (s *stage) process(i int) *Transport {
	if t := s.processes[i]; t != nil {
		return t
	}
	o := &Options{Now: s.now, MaxWait: maxEstimate, Jitter: -1, Routes: s.routes()}
	if s.of.Threshold != nil {
		o.Threshold = Keep(*s.of.Threshold)
	}
	if s.shared != nil {
		o.Shared = s.shared
	}
	s.processes[i] = New(o)
	return s.processes[i]
}

// routes returns the routes that declare the windows of the timeline: the contract's, which do not
// cover its calls, if it declares none.
func (s *stage) routes() *weir.Routes {
	if len(s.of.Windows) == 0 {
		return nil
	}
	l := weir.Limiter{Name: "table", Cost: s.of.Cost, Routes: []weir.Route{must(weir.ParseRoute("/things"))}}
	for _, w := range s.of.Windows {
		l.Windows = append(l.Windows, must(weir.ParseWindow(fmt.Sprintf("%d per %d seconds by token or ip", w.Limit, w.Seconds))))
	}
	return must(weir.NewRoutes(weir.Policy{Limiters: []weir.Limiter{l}}))
}

// call returns the call that a step starts.
func (s *stage) call(one step) call {
	path := one.Path
	if path == "" {
		path = "/things"
	}
	r := must(http.NewRequest("GET", "http://api.example.com"+path, nil))
	r.Header.Set("Authorization", "Bearer wpt_abc_def")
	t := s.process(one.Process)
	return call{ctx: context.Background(), t: t, request: r, line: t.line(r)}
}

// do plays one step, and returns its outcome.
func (s *stage) do(one step) (out leads) {
	s.at = one.At
	switch {
	case one.Start != "":
		out.Verdict = s.start(one)
	case one.Answer != "":
		a := s.take(one.Answer)
		response := &http.Response{StatusCode: one.Status, Header: one.Fields.header(), Body: http.NoBody}
		back := a.t.read(response)
		if one.Status != http.StatusTooManyRequests {
			a.finish(a.pass, back)
			break
		}
		wait, again, err := a.t.refused(&a.call, a.pass, response, back, &replay{request: a.request}, 1)
		if out.Again = []byte("null"); again && err == nil {
			out.Again = must(json.Marshal(milliseconds(int64(wait))))
		}
	case one.Lost != "":
		a := s.take(one.Lost)
		a.finish(a.pass, answer{kind: lost})
	case one.Unsent != "":
		a := s.take(one.Unsent)
		a.finish(a.pass, answer{kind: unsent})
	case one.Waiting != nil:
		c := s.call(one)
		c.line.setWaiting(*one.Waiting)
		c.line.refresh(c.t)
	}
	out.Budget = s.budget(one)
	return out
}

func (s *stage) start(one step) *says {
	c := s.call(one)
	now := c.t.now()
	p, v := c.line.try(&c, now)
	if v.start {
		s.calls[one.Start] = &acting{c, p}
		return &says{}
	}
	words := map[Reason]string{BudgetSpent: "spent", Refused: "refused", Probing: "probing"}
	return &says{milliseconds(v.until - now), words[v.why]}
}

// can reports whether the call that a step ends is in flight.
func (s *stage) can(one step) bool {
	name := one.Answer + one.Lost + one.Unsent // one of them
	return name == "" || s.calls[name] != nil
}

// take returns a call that is answered.
func (s *stage) take(name string) *acting {
	a := s.calls[name]
	delete(s.calls, name)
	return a
}

// budget returns what a process knows after a step, without changing it.
func (s *stage) budget(one step) (all []stands) {
	c := s.call(one)
	for w := range c.line.windows() {
		now, b := c.t.now(), w.view
		if s.shared != nil {
			b, _ = decode((*s.shared)[w.key])
			if !b.plausible(now) {
				b = budget{}
			}
			b.setFlight(c.t.ledger.process, w.flying, w.wanting, now)
		}
		inFlight := b.inFlight()
		known := b.phase == known && now < b.restored(now) && now >= b.seen
		out := stands{Known: &known, InFlight: &inFlight}
		if known {
			restored := milliseconds(b.restored(now) - now)
			out.Limit, out.Remaining, out.Restored = &b.limit, &b.remaining, &restored
		}
		all = append(all, out)
	}
	return all
}

// milliseconds rounds nanoseconds.
func milliseconds(n int64) int64 { return time.Duration(n).Round(time.Millisecond).Milliseconds() }

// compare returns how an outcome differs from what the table expects, or "".
func (want leads) compare(got leads) string {
	near := func(a, b int64) bool { return a-b <= 1 && b-a <= 1 }
	text := func(v any) string { return string(must(json.Marshal(v))) }
	var all []string
	switch {
	case want.Verdict == nil && got.Verdict == nil:
	case want.Verdict == nil || got.Verdict == nil || want.Verdict.Why != got.Verdict.Why || !near(want.Verdict.Wait, got.Verdict.Wait):
		all = append(all, fmt.Sprintf("verdict %s, want %s", text(got.Verdict), text(want.Verdict)))
	}
	var a, b *int64
	switch {
	case want.Again == nil && got.Again == nil:
	case want.Again == nil || got.Again == nil || json.Unmarshal(want.Again, &a) != nil || json.Unmarshal(got.Again, &b) != nil,
		(a == nil) != (b == nil), a != nil && !near(*a, *b):
		all = append(all, fmt.Sprintf("again %s, want %s", got.Again, want.Again))
	}
	if want.Budget != nil && len(want.Budget) != len(got.Budget) {
		return fmt.Sprintf("%d windows, want %d", len(got.Budget), len(want.Budget))
	}
	for i, w := range want.Budget {
		g := got.Budget[i]
		same := func(w, g *int64, by int64) bool {
			return w == nil || g != nil && *w-*g <= by && *g-*w <= by
		}
		if w.Known != nil && *w.Known != *g.Known || !same(w.Limit, g.Limit, 0) || !same(w.Remaining, g.Remaining, 0) ||
			!same(w.InFlight, g.InFlight, 0) || !same(w.Restored, g.Restored, 1) {
			all = append(all, fmt.Sprintf("window %d is %s, want %s", i, text(g), text(w)))
		}
	}
	return strings.Join(all, "; ")
}

// play plays a timeline, and reports each step that ends otherwise than the table says.
func (of *timeline) play(t *testing.T, share bool) {
	t.Helper()
	s := newStage(of, share)
	for i, one := range of.Steps {
		if !s.can(one) {
			t.Fatalf("step %d, at %d ms: the call is not in flight", i+1, one.At)
		}
		if problem := one.compare(s.do(one)); problem != "" {
			t.Errorf("step %d, at %d ms: %s", i+1, one.At, problem)
		}
	}
}

func TestTimelines(t *testing.T) {
	names := map[string]bool{}
	for _, of := range table[timeline](t, "timelines.json") {
		if names[of.Name] {
			t.Errorf("two timelines are named %q", of.Name)
		}
		names[of.Name] = true
		t.Run(of.Name, func(t *testing.T) {
			if problem := of.problem(); problem != "" {
				t.Fatal(problem)
			}
			of.play(t, false)
		})
		// A shared view with one process gives the same verdicts.
		t.Run(of.Name+", in a shared view", func(t *testing.T) { of.play(t, true) })
	}
}

// problem returns what is wrong with the form of a timeline, or "". A step that expects nothing
// where something follows would hold nothing.
func (of *timeline) problem() string {
	for i, one := range of.Steps {
		var is []string
		for what, found := range map[string]bool{"start": one.Start != "", "answer": one.Answer != "", "lost": one.Lost != "",
			"unsent": one.Unsent != "", "waiting": one.Waiting != nil} {
			if found {
				is = append(is, what)
			}
		}
		switch {
		case len(is) > 1, len(is) == 0 && one.Budget == nil:
			return fmt.Sprintf("step %d is %q: one event, or a budget", i+1, is)
		case (one.Start != "") != (one.Verdict != nil):
			return fmt.Sprintf("step %d: a verdict belongs to each start, and to nothing else", i+1)
		case (one.Answer != "") != (one.Status != 0), (one.Status == http.StatusTooManyRequests) != (one.Again != nil):
			return fmt.Sprintf("step %d: a status belongs to each answer, and again to each 429", i+1)
		case one.Path != "" && len(of.Windows) > 0:
			return fmt.Sprintf("step %d: a path is for timelines without windows", i+1)
		}
	}
	return ""
}
