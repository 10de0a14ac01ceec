package http2

import (
	"context"
	"testing"
	"time"
)

// What waits for the end of a context is called once, when it ends, unless it was stopped.
func TestAContextCallsWhatWaitsForItsEnd(t *testing.T) {
	c := &callContext{base: t.Context()}
	called := make(chan string, 10)
	wait := func(name string) func() bool { return c.AfterFunc(func() { called <- name }) }
	stopFirst := wait("stopped at first")
	if !stopFirst() || stopFirst() {
		t.Error("the first one is not stopped once")
	}
	wait("first")
	if stopFirst() {
		t.Error("an old stop stops what came after it")
	}
	wait("second")
	stopThird := wait("stopped")
	if !stopThird() || stopThird() {
		t.Error("the third one is not stopped once")
	}
	child, cancel := context.WithTimeout(c, time.Hour)
	defer cancel()
	if c.Err() != nil || child.Err() != nil {
		t.Errorf("%v, %v before the end", c.Err(), child.Err())
	}
	done := c.Done()
	c.cancel()
	c.cancel()
	<-done
	<-child.Done()
	got := map[string]bool{<-called: true, <-called: true}
	if !got["first"] || !got["second"] || c.Err() == nil {
		t.Errorf("called %v, %v", got, c.Err())
	}
	if stop := wait("late"); stop() {
		t.Error("what comes after the end can be stopped")
	}
	if name := <-called; name != "late" {
		t.Errorf("%q is called after the end", name)
	}
	<-(&callContext{over: true}).Done()
}
