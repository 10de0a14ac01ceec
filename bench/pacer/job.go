package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A job is the work of one process of callers: each of its goroutines takes the next number, sends
// that request, and continues after the answer.
type job struct {
	URL, Token string
	Who        string // the contestant
	First      int    // the first number
	Requests   int
	Goroutines int
	Limit      int64
	Per        time.Duration
	Shared     string        // the file of pacer.OpenFile; empty: none
	Shift      time.Duration // how far this process's clock is ahead
	Everything bool          // threshold 0
	Within     time.Duration // after which it gives up
	Tabs       int           // of the browser that the job's tab belongs to
}

// A report is the result of one or several jobs.
type report struct {
	Sent, Served, Refused int           // on the wire
	RefusedBy, ServedBy   map[int64]int // the same, by the window's reset
	Told                  int           // refusals according to the pacer
	Unshared              int           // failures of the shared view
	Began, Ended          time.Time     // the first request was sent, the last one was served
	Longest               time.Duration // the longest call, with all its waits
	Failed                int           // calls that failed
	First                 string        // the error of the first of them
}

// add adds the report of another process of the same run.
func (r *report) add(o report) {
	if r.RefusedBy == nil {
		r.RefusedBy, r.ServedBy = map[int64]int{}, map[int64]int{}
	}
	r.Sent, r.Served, r.Refused = r.Sent+o.Sent, r.Served+o.Served, r.Refused+o.Refused
	r.Told, r.Unshared, r.Failed, r.Longest = r.Told+o.Told, r.Unshared+o.Unshared, r.Failed+o.Failed, max(r.Longest, o.Longest)
	for reset, n := range o.RefusedBy {
		r.RefusedBy[reset] += n
	}
	for reset, n := range o.ServedBy {
		r.ServedBy[reset] += n
	}
	if r.Began.IsZero() || !o.Began.IsZero() && o.Began.Before(r.Began) {
		r.Began = o.Began
	}
	if o.Ended.After(r.Ended) {
		r.Ended = o.Ended
	}
	if r.First == "" {
		r.First = o.First
	}
}

// run does the job in this process.
func (j job) run() (report, error) {
	ctx, cancel := context.WithTimeout(context.Background(), j.Within)
	defer cancel()
	w := newWire(j.Goroutines)
	own := new(word)
	call, end, err := open(j, w, own)
	if err != nil {
		return report{}, fmt.Errorf("open %s: %w", j.Who, err)
	}
	var (
		group sync.WaitGroup
		next  atomic.Int64
		mu    sync.Mutex
		calls report
	)
	for range j.Goroutines {
		group.Go(func() {
			for n := int(next.Add(1)) - 1; n < j.Requests; n = int(next.Add(1)) - 1 {
				began := time.Now()
				err := j.send(ctx, call, j.First+n)
				took := time.Since(began)
				mu.Lock()
				calls.Longest = max(calls.Longest, took)
				if err != nil {
					if calls.Failed++; calls.Failed == 1 {
						calls.First = err.Error()
					}
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	r := w.found
	r.add(calls)
	r.Told, r.Unshared = int(own.refused.Load()), int(own.failures.Load())
	return r, end()
}

// send sends the request of a number, and checks that its answer is for that number.
func (j job) send(ctx context.Context, call caller, number int) error {
	answer, err := call(ctx, func() (*http.Request, error) {
		r, err := j.newRequest(number)
		if err != nil {
			return nil, err
		}
		return r.WithContext(ctx), nil
	})
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK || string(text) != strconv.Itoa(number) {
		return fmt.Errorf("request %d was answered %d %.200q", number, answer.StatusCode, text)
	}
	return nil
}

// childFlag makes this program a process of callers: its job comes on standard input, then an empty
// line starts it; its report goes to standard output.
const childFlag = "-child"

func child() error {
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	var j job
	if err := json.Unmarshal(line, &j); err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	fmt.Println("ready")
	if _, err := in.ReadBytes('\n'); err != nil {
		return fmt.Errorf("wait for the others: %w", err)
	}
	r, err := j.run()
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// A process is this program, or one of another language, as callers.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startProcess(ctx context.Context, in language, j job) (*process, error) {
	program, err := in.program()
	if err != nil {
		return nil, err
	}
	// ctx kills it by its process id.
	p := &process{cmd: exec.CommandContext(ctx, program[0], program[1:]...)}
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	if err := json.NewEncoder(p.in).Encode(j); err != nil {
		return p, err
	}
	if line, err := p.out.ReadString('\n'); err != nil || strings.TrimSpace(line) != "ready" {
		return p, fmt.Errorf("start a process of callers: it printed %q: %w", line, err)
	}
	return p, nil
}

// runAll runs the jobs, each in a process of its own in a language; they start together.
func runAll(ctx context.Context, in language, jobs []job) (all report, err error) {
	ctx, cancel := context.WithTimeout(ctx, jobs[0].Within+20*time.Second)
	defer cancel()
	var processes []*process
	for _, j := range jobs {
		p, startErr := startProcess(ctx, in, j)
		if p != nil {
			processes = append(processes, p)
		}
		if err = startErr; err != nil {
			cancel()
			break
		}
	}
	for _, p := range processes {
		fmt.Fprintln(p.in) // start
	}
	for _, p := range processes {
		var r report
		readErr := json.NewDecoder(p.out).Decode(&r)
		p.in.Close()
		err = errors.Join(err, readErr, p.cmd.Wait())
		all.add(r)
	}
	return all, err
}
