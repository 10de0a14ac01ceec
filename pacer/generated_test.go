package pacer

import (
	"bytes"
	"encoding/json"
	flags "flag"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"
)

var update = flags.Bool("update", false, "write testdata/generated.json anew; other languages' clients run it")

// TestGeneratedTimelines holds the file to what this package does, so that clients in other
// languages, which run the file, do the same.
func TestGeneratedTimelines(t *testing.T) {
	made := generate(t)
	path := filepath.Join("testdata", "generated.json")
	if *update {
		if err := os.WriteFile(path, made, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if most := 300_000; len(made) > most {
		t.Errorf("the file has %d bytes, more than %d", len(made), most)
	}
	was, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(was, made) {
		t.Errorf("testdata/generated.json is another version's (%v): go test ./pacer -run Generated -update", err)
	}
	for _, of := range table[timeline](t, "generated.json") {
		// If there is one process, the verdicts were made without a shared view.
		t.Run(of.Name, func(t *testing.T) { of.play(t, true) })
	}
}

// generate makes the file: one timeline for each seed, without those that depend on a millisecond.
func generate(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	separator := "[\n"
	kept, seen := 0, map[string]bool{}
	for seed := uint64(0); kept < 60; seed++ {
		if seed == 200 {
			t.Fatalf("only %d of %d seeds could be used", kept, seed)
		}
		c := newCourse(seed)
		c.run()
		of := c.stage.of
		if len(of.Steps) < 12 || !of.robust(1) || !of.robust(-1) {
			continue
		}
		kept++
		for _, one := range of.Steps {
			if one.Verdict != nil {
				seen[one.Verdict.Why] = true
			}
			seen[strconv.Itoa(one.Status)] = true
			seen[fmt.Sprint("lost ", one.Lost != "")], seen[fmt.Sprint("unsent ", one.Unsent != "")] = true, true
		}
		steps := of.Steps
		of.Steps = nil
		head := must(json.Marshal(of))
		out.WriteString(separator + string(bytes.TrimSuffix(head, []byte("null}"))) + "[")
		for i, one := range steps {
			if i > 0 {
				out.WriteString(",")
			}
			out.WriteString("\n" + string(must(json.Marshal(one))))
		}
		out.WriteString("]}")
		separator = ",\n"
	}
	out.WriteString("\n]\n")
	for _, what := range []string{"", "spent", "refused", "probing", "200", "429", "503", "lost true", "unsent true"} {
		if !seen[what] {
			t.Errorf("no generated timeline has %q", what)
		}
	}
	return out.Bytes()
}

// robust reports whether all calls would get the same verdicts if they asked a little later or
// earlier, except for the duration of waits: another language rounds otherwise.
func (of *timeline) robust(by int64) bool {
	s := newStage(of, false)
	for _, one := range of.Steps {
		if one.Start != "" {
			one.At += by
		}
		if !s.can(one) {
			return false
		}
		want, got := one.Verdict, s.do(one).Verdict
		if want != nil && (want.Why != got.Why || want.Why != "" && (got.Wait < 3 || want.Wait < 3)) {
			return false
		}
	}
	return true
}

// A course makes one timeline: callers, a server with a clock of its own, and others who spend.
type course struct {
	random *rand.Rand
	stage  *stage
	events []event // in the order of their time
	ids    int

	windows  []*served
	offset   int64 // ms by which the server's clock is ahead
	dated    bool
	dialect  int
	latency  int64
	others   int64 // units that others spend beside each call, at most
	faults   int   // of a hundred calls
	queues   [][]string
	asks     []int64 // when the first of each queue asks; 0: no one waits
	told     []int   // the waiting calls that the others know of
	maxSteps int
}

type event struct {
	at int64
	do func()
}

// served is one window of the server. Like Weir's it opens with its first request, at a second.
type served struct {
	limit, seconds int64
	spent, ends    int64 // ends is in Unix ms
}

func newCourse(seed uint64) *course {
	random := rand.New(rand.NewPCG(seed, 15))
	c := &course{random: random, dated: random.IntN(6) > 0, dialect: random.IntN(len(courseDialects) + 4), latency: 10 + random.Int64N(600), maxSteps: 30 + random.IntN(25)}
	c.offset = random.Int64N(40*60_000) - 20*60_000
	if !c.dated {
		c.offset = random.Int64N(400) - 200
	}
	first := &served{limit: 2 + random.Int64N(30), seconds: 2 + random.Int64N(60)}
	c.windows = append(c.windows, first)
	of := &timeline{Cost: 1}
	if random.IntN(4) > 0 {
		of.Windows = append(of.Windows, declares{first.limit, first.seconds})
		of.Cost = 1 + max(random.Int64N(6)-3, 0)
		if random.IntN(3) == 0 {
			second := &served{limit: first.limit*2 + 1, seconds: first.seconds * 5}
			c.windows = append(c.windows, second)
			of.Windows = append(of.Windows, declares{second.limit, second.seconds})
		}
	}
	if random.IntN(3) == 0 {
		n := random.Int64N(3)
		of.Threshold = &n
	}
	if random.IntN(3) == 0 {
		c.others = 1 + random.Int64N(3)
	}
	c.faults = []int{0, 5, 20}[random.IntN(3)]
	processes := []int{1, 1, 1, 2, 3}[random.IntN(5)]
	c.queues, c.asks, c.told = make([][]string, processes), make([]int64, processes), make([]int, processes)
	of.Name = fmt.Sprintf("Seed %d: processes %d, %s", seed, processes, c.words())
	c.stage = newStage(of, processes > 1)
	for range 14 + random.IntN(10) {
		process := random.IntN(processes)
		c.after(random.Int64N(first.seconds*1800), func() { c.arrive(process) })
	}
	return c
}

// words describes the server.
func (c *course) words() string {
	s := "no Date"
	if c.dated {
		s = fmt.Sprintf("a clock %d ms ahead", c.offset)
	}
	for _, w := range c.windows {
		s += fmt.Sprintf(", %d per %d s", w.limit, w.seconds)
	}
	return fmt.Sprintf("%s, others spend up to %d", s, c.others)
}

// after has something happen later.
func (c *course) after(ms int64, do func()) {
	e := event{c.stage.at + ms, do}
	at, _ := slices.BinarySearchFunc(c.events, e, func(a, b event) int {
		if a.at <= b.at {
			return -1
		}
		return 1
	})
	c.events = slices.Insert(c.events, at, e)
}

func (c *course) run() {
	for len(c.events) > 0 && len(c.stage.of.Steps) < c.maxSteps {
		e := c.events[0]
		c.events = c.events[1:]
		c.stage.at = max(e.at, c.stage.at)
		e.do()
	}
}

// add plays a step, and adds it with its outcome.
func (c *course) add(one step) leads {
	one.At = c.stage.at
	out := c.stage.do(one)
	one.leads = out
	if one.Start != "" || c.random.IntN(4) > 0 {
		one.Budget = nil
	}
	c.stage.of.Steps = append(c.stage.of.Steps, one)
	return out
}

// arrive is a new call of a process.
func (c *course) arrive(process int) {
	c.ids++
	c.queues[process] = append(c.queues[process], "c"+strconv.Itoa(c.ids))
	if c.asks[process] == 0 {
		c.ask(process)
	}
}

// ask has the calls of a process start, in their order, until one waits.
func (c *course) ask(process int) {
	for len(c.queues[process]) > 0 {
		if n := len(c.queues[process]) - 1; len(c.queues) > 1 && n != c.told[process] {
			c.told[process] = n
			c.add(step{Process: process, Waiting: &n})
		}
		name := c.queues[process][0]
		v := c.add(step{Process: process, Start: name}).Verdict
		if v.Why != "" {
			at := c.stage.at + v.Wait + 3 + c.random.Int64N(40)
			c.asks[process] = at
			c.after(at-c.stage.at, func() {
				if c.asks[process] == at {
					c.ask(process)
				}
			})
			return
		}
		c.queues[process] = c.queues[process][1:]
		c.send(process, name)
	}
	c.asks[process] = 0
}

// send is the way of a call to the server and back.
func (c *course) send(process int, name string) {
	there, back := 1+c.random.Int64N(c.latency), 1+c.random.Int64N(c.latency)
	fault := 5
	if c.random.IntN(100) < c.faults {
		fault = c.random.IntN(4)
	}
	if fault == 0 {
		c.after(there, func() { c.end(process, step{Unsent: name}) })
		return
	}
	c.after(there, func() {
		status, fields := c.decide()
		switch fault {
		case 1:
			c.after(back*3, func() { c.end(process, step{Lost: name}) })
			return
		case 2:
			status, fields = http.StatusServiceUnavailable, nil
		case 3: // a limit without fields; the budget's may still be there
			if c.random.IntN(2) == 0 {
				fields = sends{}
			}
			status, fields["Retry-After"] = http.StatusTooManyRequests, strconv.Itoa(1+c.random.IntN(9))
		}
		c.after(back, func() { c.end(process, step{Answer: name, Status: status, Fields: fields}) })
	})
}

// end is the end of a call: the first of the queue may ask again, and a refused call comes back.
func (c *course) end(process int, one step) {
	one.Process = process
	out := c.add(one)
	var wait *int64
	if out.Again != nil && json.Unmarshal(out.Again, &wait) == nil && wait != nil {
		c.after(*wait+5, func() { c.arrive(process) })
	}
	if c.asks[process] != 0 && c.random.IntN(2) == 0 {
		c.asks[process] = 0
		c.after(4, func() {
			if c.asks[process] == 0 {
				c.ask(process)
			}
		})
	}
}

// decide is the server's answer to a call.
func (c *course) decide() (status int, fields sends) {
	now := c.stage.now().UnixMilli() + c.offset
	for _, w := range c.windows {
		if now >= w.ends {
			w.spent, w.ends = 0, (now/1000+w.seconds)*1000
		}
		if c.others > 0 {
			w.spent = min(w.limit, w.spent+c.random.Int64N(c.others+1))
		}
	}
	cost := c.stage.of.Cost
	status, fields = http.StatusOK, sends{}
	binding := c.windows[0]
	for _, w := range c.windows {
		if w.spent+cost > w.limit && (status == http.StatusOK || w.ends > binding.ends) {
			status, binding = http.StatusTooManyRequests, w
		}
	}
	if status == http.StatusOK {
		for _, w := range c.windows {
			w.spent += cost
			if left := w.limit - w.spent; left < binding.limit-binding.spent || left == binding.limit-binding.spent && w.ends > binding.ends {
				binding = w
			}
		}
	}
	if c.dated {
		fields["Date"] = time.UnixMilli(now).UTC().Format(http.TimeFormat)
	}
	left := binding.limit - binding.spent
	if status == http.StatusTooManyRequests {
		left = 0
		if c.random.IntN(4) > 0 {
			fields["Retry-After"] = strconv.FormatInt((binding.ends-now/1000*1000)/1000, 10)
		}
	}
	say := courseDialects[max(c.dialect-4, 0)]
	say(fields, binding, left, binding.ends-now)
	return status, fields
}

// courseDialects are the forms of the fields; the first is the contract's. in is in ms.
var courseDialects = []func(f sends, w *served, left, in int64){
	func(f sends, w *served, left, in int64) {
		three(f, "X-RateLimit", w.limit, left, strconv.FormatInt(w.ends/1000, 10))
	},
	func(f sends, w *served, left, in int64) {
		three(f, "x-ratelimit", w.limit, left, strconv.FormatInt((in+999)/1000, 10))
	},
	func(f sends, w *served, left, in int64) {
		three(f, "RateLimit", w.limit, left, strconv.FormatFloat(math.Ceil(float64(in)/100)/10, 'f', -1, 64))
	},
	func(f sends, w *served, left, in int64) {
		three(f, "X-RateLimit", w.limit, left, strconv.FormatInt(w.ends, 10))
	},
	func(f sends, w *served, left, in int64) {
		three(f, "X-RateLimit", w.limit, left, (time.Duration(in) * time.Millisecond).String())
	},
	func(f sends, w *served, left, in int64) {
		three(f, "X-RateLimit", w.limit, left, time.UnixMilli(w.ends).UTC().Format(time.RFC3339))
	},
	func(f sends, w *served, left, in int64) {
		f["RateLimit"] = fmt.Sprintf("limit=%d, remaining=%d, reset=%d", w.limit, left, (in+999)/1000)
	},
	func(f sends, w *served, left, in int64) {
		f["RateLimit-Policy"] = fmt.Sprintf(`"default";q=%d;w=%d`, w.limit, w.seconds)
		f["RateLimit"] = fmt.Sprintf(`"default";r=%d;t=%d`, left, (in+999)/1000)
	},
}

func three(f sends, prefix string, limit, left int64, reset string) {
	suffix := [...]string{"-Limit", "-Remaining", "-Reset"}
	if prefix[0] == 'x' {
		suffix = [...]string{"-limit", "-remaining", "-reset"}
	}
	f[prefix+suffix[0]], f[prefix+suffix[1]], f[prefix+suffix[2]] = strconv.FormatInt(limit, 10), strconv.FormatInt(left, 10), reset
}
