package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// Each contestant is measured in a process of its own, so that no heap slows another contestant,
// and no memory is attributed to another. The parent talks to one child after another, with a line
// of JSON each way.

// A request is one command to a child.
type request struct {
	Do         string        // open, reopen, fill, spend, turn, memory, collect, expire, grow
	Contestant string        // open, reopen
	Setup      setup         // open, reopen
	Turn       turn          // turn
	From, To   int           // fill, memory, grow: numbers of keys
	For        time.Duration // expire
	// expire, grow: also measure how much of the worst time was the decision's own
	Own bool
}

// An answer is the result of a request, each figure by its name.
type answer struct {
	Error   string             `json:",omitempty"`
	Figures map[string]float64 `json:",omitempty"`
}

// serveChild answers requests until standard input ends.
func serveChild(in io.Reader, out io.Writer) error {
	c := child{}
	requests, answers := json.NewDecoder(bufio.NewReader(in)), json.NewEncoder(out)
	for {
		var r request
		if err := requests.Decode(&r); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		a := answer{Figures: map[string]float64{}}
		if err := c.do(r, a.Figures); err != nil {
			a = answer{Error: fmt.Sprintf("%s: %v", r.Do, err)}
		}
		if err := answers.Encode(a); err != nil {
			return err
		}
	}
}

// A child holds one store at a time.
type child struct {
	contestant contestant
	setup      setup
	store      store
	opened     time.Time
	resident   int64 // bytes, before the store was opened
}

func (c *child) do(r request, figures map[string]float64) error {
	switch {
	case r.Do == "open":
		return c.open(r)
	case r.Do == "reopen":
		return c.reopen(r, figures)
	case c.store == nil:
		return fmt.Errorf("nothing is open")
	}
	switch r.Do {
	case "fill":
		return c.fill(r.From, r.To)
	case "spend":
		return c.spend()
	case "turn":
		return c.turn(r.Turn, figures)
	case "memory":
		return c.memory(r.From, r.To, figures)
	case "collect":
		return c.collect(figures)
	case "expire":
		return c.expire(r, figures)
	case "grow":
		return c.grow(r, figures)
	}
	return fmt.Errorf("no such request")
}

func (c *child) open(r request) error {
	if c.store != nil {
		return fmt.Errorf("one store is open already")
	}
	var ok bool
	if c.contestant, ok = contestantNamed(r.Contestant); !ok {
		return fmt.Errorf("no contestant is called %q", r.Contestant)
	}
	var err error
	if c.resident, err = residentBytes(); err != nil {
		return err
	}
	c.opened, c.setup = time.Now(), r.Setup
	c.store, err = c.contestant.open(r.Setup)
	return err
}

// fill takes once for each key of [from, to).
func (c *child) fill(from, to int) error {
	take, next := c.store.worker(), c.keys()
	for n := from; n < to; n++ {
		if !take(next(uint64(n))) {
			return fmt.Errorf("key %d was refused its first unit", n)
		}
	}
	return nil
}

// spend takes for one key until it is refused.
func (c *child) spend() error {
	take, k := c.store.worker(), newKey(0)
	for range c.setup.Limit + 10 {
		if !take(bytes.Clone(k[:])) {
			return nil
		}
	}
	return fmt.Errorf("the key is still allowed after %d units of %d", c.setup.Limit+10, c.setup.Limit)
}

// keys returns a function that makes keys which may be new to the store.
func (c *child) keys() func(n uint64) []byte {
	k := newKey(0)
	if !c.contestant.keepsKey {
		return func(n uint64) []byte { k.set(n); return k[:] }
	}
	return func(n uint64) []byte {
		k.set(n)
		return bytes.Clone(k[:])
	}
}

// A process is a child as its parent sees it.
type process struct {
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *json.Decoder
}

// start runs a child without a store.
func start(name string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{name: name, cmd: exec.Command(self, "child")}
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = json.NewDecoder(out)
	return p, p.cmd.Start()
}

// startWith runs a child with an open store.
func startWith(name string, s setup) (*process, error) {
	p, err := start(name)
	if err != nil {
		return nil, err
	}
	if _, err := p.ask(request{Do: "open", Contestant: name, Setup: s}); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

// ask sends a request and waits for its answer.
func (p *process) ask(r request) (map[string]float64, error) {
	if err := json.NewEncoder(p.in).Encode(r); err != nil {
		return nil, fmt.Errorf("ask %s to %s: %w", p.name, r.Do, err)
	}
	var a answer
	if err := p.out.Decode(&a); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", p.name, r.Do, err)
	}
	if a.Error != "" {
		return nil, fmt.Errorf("%s: %s", p.name, a.Error)
	}
	return a.Figures, nil
}

// stop ends the child and waits for it.
func (p *process) stop() {
	p.in.Close()
	p.cmd.Wait()
}

// kill kills the child, like kill -9.
func (p *process) kill() {
	p.cmd.Process.Kill()
	p.cmd.Wait()
}
