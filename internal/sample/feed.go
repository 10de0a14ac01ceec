package sample

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/sample/sqlite"
)

// A feed wakes whoever waits for a conversation's events. It carries none: what has happened is read from the database,
// after a cursor, so nothing is lost or told twice by whatever becomes of a connection or of this process. Commits of
// this process wake at once. Those of other processes on the same data directory are looked for while anybody waits, by
// one goroutine, which ends with the last listener or with close.
//
// It is safe for concurrent use.
type feed struct {
	db       *sqlite.DB
	log      *slog.Logger
	interval time.Duration // between two looks for other processes' commits

	draining chan struct{} // closed when everything that is held open is to end
	drain    func()        // closes it, once

	ctx     context.Context // of the goroutine
	stop    context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	topics   map[string]*topic // by conversation; only those that somebody listens to
	watching bool              // the goroutine runs
}

// A topic is one conversation that is listened to.
type topic struct {
	newest    int64 // of which everybody who then listened was told
	listeners map[*listener]struct{}
}

// A listener is woken when there may be news. It listens first and reads then: what is committed before the reading is
// read, what is committed after it wakes.
type listener struct {
	wake         chan struct{} // one waiting signal says as much as many
	feed         *feed
	conversation string
}

// newFeed returns a feed of db, which nobody uses yet.
func newFeed(db *sqlite.DB, interval time.Duration, log *slog.Logger) *feed {
	f := &feed{db: db, log: log, interval: interval, draining: make(chan struct{}), topics: map[string]*topic{}}
	f.drain = sync.OnceFunc(func() { close(f.draining) })
	f.ctx, f.stop = context.WithCancel(context.Background())
	db.Listen(f.announce)
	return f
}

// close ends the goroutine, and waits for it.
func (f *feed) close() {
	f.drain()
	f.stop()
	f.mu.Lock()
	f.watching = true // none is started any more
	f.mu.Unlock()
	f.running.Wait()
}

// listen begins to listen to a conversation, until leave.
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

// leave ends the listening.
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

// announce wakes whoever listens to a conversation, unless they were woken for its event n, or a newer one, before. Where n is
// 0 nobody knows whether there is one.
func (f *feed) announce(conversation string, n int64) {
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
		default: // the signal before is not taken yet
		}
	}
}

// watch looks for other processes' commits until nobody listens any more.
func (f *feed) watch() {
	tick := time.NewTicker(f.interval)
	defer tick.Stop()
	var seen sqlite.Version // the zero one: the first look is at every topic, whatever was committed since it began
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
			err = f.db.Newest(f.ctx, topics, f.announce)
		}
		if err == nil {
			seen = version
		} else if f.ctx.Err() == nil && !failing { // it is tried again at the next tick, and told of once
			f.log.Warn("sample backend: other processes' events are delayed", "error", err)
		}
		failing = err != nil
	}
}

// listened returns every conversation that is listened to. Where there is none, the watching has ended.
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
