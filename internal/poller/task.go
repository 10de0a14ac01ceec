package poller

import (
	"iter"
	"sync/atomic"
)

// A Task is a goroutine that a poller can run itself: when a socket that the task waits for becomes
// ready, the poller switches to the task at once, and continues when the task waits again. Such a
// switch costs less than half of what the scheduler needs to wake a goroutine, and tasks run in the
// order in which their sockets became ready.
//
// Only waits for sockets that are attached to the task (Conn.Attach) end with such a switch. While
// a poller runs a task, the other tasks of its sockets wait. So before any other wait, and before
// long work, the task calls Detach. Relieve bounds what a task costs the others that does not.
//
// A nil *Task is a goroutine that no poller runs.
type Task struct {
	next  func() (pause, bool)
	yield func(pause) bool
	state atomic.Uint32
	ready bool // the last wait ended because the socket is ready; false: to check for failure
	// a poller runs the task, or did until Relieve; the goroutine of the task reads it
	inside bool
}

// A pause is why a task stops running.
type pause uint8

const (
	waits    pause = iota // for a socket
	detaches              // to go on in a goroutine of its own
)

// The states of a task. Whoever changes it from parked to running runs it.
const (
	running  uint32 = iota
	parked          // it waits
	notified        // it runs, and what it is about to wait for has happened
)

// Run calls f with its task, and returns when that waits for the first time, or has ended. Until
// then the task is detached. f must not panic.
func Run(f func(*Task)) {
	t := new(Task)
	t.next, _ = iter.Pull(func(yield func(pause) bool) {
		t.yield = yield
		f(t)
	})
	t.run(nil)
}

// Detach makes the task go on in a goroutine of its own until its next wait. It does nothing if
// that is so already. Only the task's goroutine may call it.
func (t *Task) Detach() {
	if t.IsInside() {
		t.yield(detaches)
	}
}

// IsInside reports whether a poller runs the task. Only the task's goroutine may call it.
func (t *Task) IsInside() bool { return t != nil && t.inside }

// wait returns when the task was woken. It reports whether the socket is ready.
func (t *Task) wait() bool {
	t.yield(waits)
	return t.ready
}

// wake ends a wait that has begun or is about to begin. Each wait is woken once. by is the poller
// that runs what follows; nil: this goroutine does.
func (t *Task) wake(ready bool, by *poller) {
	t.ready = ready
	for {
		if t.state.CompareAndSwap(parked, running) {
			t.run(by)
			return
		}
		if t.state.CompareAndSwap(running, notified) {
			return
		}
	}
}

// run runs the task until it waits. by is the poller that does; nil: a goroutine of its own.
func (t *Task) run(by *poller) {
	t.inside = by != nil
	for {
		why, more := t.next()
		switch {
		case !more:
			return
		case why == detaches:
			go t.run(nil)
			return
		case t.state.CompareAndSwap(running, parked):
			return
		}
		t.state.Store(running) // it was notified
	}
}
