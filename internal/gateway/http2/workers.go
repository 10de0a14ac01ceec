package http2

import "sync"

// Workers are goroutines that serve streams. One that has nothing to do waits for the next stream:
// its stack has grown already, which a new goroutine's would have to. The zero value is ready for
// use.
type workers struct {
	mu    sync.Mutex
	idle  []chan *exchange // the last one has waited for the shortest time
	spare int              // the fewest that were idle since the last trim
	over  bool
	all   sync.WaitGroup
}

// run has x served by a worker.
func (w *workers) run(x *exchange) {
	w.mu.Lock()
	if n := len(w.idle); n > 0 {
		next := w.idle[n-1]
		w.idle = w.idle[:n-1]
		w.spare = min(w.spare, n-1)
		w.mu.Unlock()
		next <- x
		return
	}
	w.spare = 0
	w.mu.Unlock()
	w.all.Go(func() { w.work(x) })
}

// work serves x, and what comes after it.
func (w *workers) work(x *exchange) {
	next := make(chan *exchange, 1)
	for x != nil {
		x.work()
		w.mu.Lock()
		if w.over {
			w.mu.Unlock()
			return
		}
		w.idle = append(w.idle, next)
		w.mu.Unlock()
		x = <-next
	}
}

// trim ends half of the workers that were idle since the last trim.
func (w *workers) trim() {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := (w.spare + 1) / 2
	for i := range n {
		w.idle[i] <- nil
	}
	rest := copy(w.idle, w.idle[n:])
	clear(w.idle[rest:])
	w.idle = w.idle[:rest]
	w.spare = rest
}

// end ends all workers, when they have served what they serve.
func (w *workers) end() {
	w.mu.Lock()
	w.over = true
	for _, next := range w.idle {
		next <- nil
	}
	w.idle = nil
	w.mu.Unlock()
	w.all.Wait()
}
