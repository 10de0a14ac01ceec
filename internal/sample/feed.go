package sample

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/sample/sqlite"
)

// A feed wakes the requests that wait for events of a conversation. It carries no events: requests
// read them from the database after a cursor, so that no event is lost or delivered twice, whatever
// happens to a connection or to this process. Commits of this process wake listeners at once. While
// there are listeners, one goroutine polls for commits of other processes on the same data
// directory. It ends with the last listener or with close.
type feed struct {
	db       *sqlite.DB
	log      *slog.Logger
	interval time.Duration // interval of polling for other processes' commits

	draining chan struct{} // closed when all held requests must end
	drain    func()        // closes draining, once

	ctx     context.Context // of the goroutine
	stop    context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	topics   map[string]*topic // by conversation; only those with listeners
	watching bool              // the polling goroutine runs
}

// A topic is one conversation with listeners.
type topic struct {
	newest    int64 // the newest event for which listeners were woken
	listeners map[*listener]struct{}
}

// A listener is woken when there may be new events. A request listens first and reads then, so that
// an event is either read or wakes it.
type listener struct {
	wake         chan struct{} // buffers one signal
	feed         *feed
	conversation string
}

// newFeed returns a feed of db, which must not be in use yet.
func newFeed(db *sqlite.DB, interval time.Duration, log *slog.Logger) *feed {
	f := &feed{db: db, log: log, interval: interval, draining: make(chan struct{}), topics: map[string]*topic{}}
	f.drain = sync.OnceFunc(func() { close(f.draining) })
	f.ctx, f.stop = context.WithCancel(context.Background())
	db.Listen(f.notify)
	return f
}

// close ends the goroutine and waits for it.
func (f *feed) close() {
	f.drain()
	f.stop()
	f.mu.Lock()
	f.watching = true // so that none is started again
	f.mu.Unlock()
	f.running.Wait()
}

// listen adds a listener to a conversation, until leave.
func (f *feed) listen(conversation string) *listener {
	l := &listener{wake: make(chan struct{}, 1), feed: f, conversation: conversation}
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.topics[conversation]
	if t == nil {
		t = &topic{listeners: make(map[*listener]struct{}, 1)}
		f.topics[conversation] = t
	}
	t.listeners[l] = struct{}{}
	if !f.watching {
		f.watching = true
		f.running.Go(f.watch)
	}
	return l
}

// leave removes the listener.
func (l *listener) leave() {
	f := l.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.topics[l.conversation]
	delete(t.listeners, l)
	if len(t.listeners) == 0 {
		delete(f.topics, l.conversation)
	}
}

// notify wakes the listeners of a conversation, unless they were woken for event n or a newer one
// before. If n is 0 there may or may not be a new event.
func (f *feed) notify(conversation string, n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.topics[conversation]
	if t == nil || n != 0 && n <= t.newest {
		return
	}
	t.newest = max(t.newest, n)
	for l := range t.listeners {
		select {
		case l.wake <- struct{}{}:
		default: // a signal is pending
		}
	}
}

// watch polls for other processes' commits until there are no listeners.
func (f *feed) watch() {
	tick := time.NewTicker(f.interval)
	defer tick.Stop()
	var seen sqlite.Version // zero, so that the first poll reads every topic
	for failing := false; ; {
		select {
		case <-f.ctx.Done():
			return
		case <-tick.C:
		}
		topics := f.listened()
		if topics == nil {
			return
		}
		version, err := f.db.Version(f.ctx)
		if err == nil && version != seen {
			err = f.db.Newest(f.ctx, topics, f.notify)
		}
		if err == nil {
			seen = version
		} else if f.ctx.Err() == nil && !failing { // logged once; the next tick tries again
			f.log.Warn("sample backend: other processes' events are delayed", "error", err)
		}
		failing = err != nil
	}
}

// listened returns every conversation with listeners. If there is none, it ends the watching.
func (f *feed) listened() (conversations []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.topics {
		conversations = append(conversations, c)
	}
	if conversations == nil && f.ctx.Err() == nil {
		f.watching = false
	}
	return conversations
}
