// Package events reports the requests that bring a window's count to a percentage of its limit
// (weir.Limiter.Notify) to the log, and to a webhook.
//
// A request adds an event to a queue and goes on. Goroutines of the Sender log it and post it. All
// queues are bounded: what does not fit is counted as lost, and never makes a request wait.
//
//	events.go   the API, and the path of one event: Crossed, the queue, the log, the outbox
//	event.go    the content of an event, and how it names the caller
//	seen.go     the memory of recent events, so that each is sent once
//	webhook.go  one attempt: signed as Standard Webhooks specifies
//	retry.go    attempts until the receiver accepts, or the event expires
//	totals.go   what became of all events
package events

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/weirlimit/weir"
)

const (
	maxQueued   = 1024 // events that wait for the log
	maxOutbox   = 4096 // events that wait for the webhook
	senders     = 8    // attempts at the same time
	maxLogged   = 20   // lines a second
	reportEvery = time.Minute
)

// Options are the settings of a Sender. Log, Key and Random are required.
type Options struct {
	// URL is the webhook; nil: events go to the log only. Secret is required with it: base64 of 24
	// to 64 bytes, which may begin with "whsec_".
	URL    *url.URL
	Secret string

	// Key returns the key of the hashes of callers and of the ids of events, at least 16 bytes. It
	// returns fewer while it is not known. With the same key, processes give one event the same id.
	Key func() []byte

	Log *slog.Logger

	// Random is read once, for the key while Key has none.
	Random io.Reader

	// Transport posts events; nil means one of the Sender's own, without a proxy.
	Transport http.RoundTripper
}

// A Sender logs events and posts them. It is safe for concurrent use.
type Sender struct {
	options Options
	hook    *webhook // nil: there is no URL
	spare   []byte   // the key while Options.Key has none

	queue  chan Event
	outbox chan Event // nil: there is no URL
	seen   seen
	totals totals

	closing chan struct{} // closed when Close begins
	flush   context.Context
	cancel  context.CancelFunc // ends flush, and every attempt
	running sync.WaitGroup
	closed  sync.Once
}

// New returns a Sender whose goroutines run until Close. It returns an error if the secret is not
// one.
func New(o Options) (*Sender, error) {
	s := &Sender{
		options: o, spare: make([]byte, minKey), closing: make(chan struct{}),
		queue: make(chan Event, maxQueued),
	}
	if _, err := io.ReadFull(o.Random, s.spare); err != nil {
		return nil, fmt.Errorf("new sender of events: read %d random bytes: %w", len(s.spare), err)
	}
	if o.URL != nil {
		var err error
		if s.hook, err = newWebhook(o); err != nil {
			return nil, fmt.Errorf("new sender of events: %w", err)
		}
		s.outbox = make(chan Event, maxOutbox)
	}
	s.flush, s.cancel = context.WithCancel(context.Background())
	s.running.Go(s.logAll)
	if s.hook != nil {
		for range senders {
			s.running.Go(s.sendAll)
		}
	}
	return s, nil
}

// Crossed reports one crossing: it is for weir.Options.OnCrossed. It never blocks, and keeps
// nothing of c.
func (s *Sender) Crossed(c weir.Crossed) {
	e := s.event(c)
	if !s.seen.isNew(e.fingerprint) {
		s.totals.add(repeated)
		return
	}
	select {
	case <-s.closing:
		s.lose(unsent)
	default:
		select {
		case s.queue <- e:
		default:
			s.totals.add(unlogged)
			s.lose(dropped)
		}
	}
}

// lose counts an event that a webhook does not get. Without a webhook none is lost.
func (s *Sender) lose(r result) {
	if s.hook != nil {
		s.totals.add(r)
	}
}

// Totals returns how many events had each result, by the result's name. They never decrease.
func (s *Sender) Totals() map[string]int64 { return s.totals.read() }

// logAll logs events, and passes them on to the webhook, until Close.
func (s *Sender) logAll() {
	ticker := time.NewTicker(reportEvery)
	defer ticker.Stop()
	bound := logBound{}
	for {
		select {
		case e := <-s.queue:
			s.pass(e, &bound)
		case <-ticker.C:
			s.totals.report(s.options.Log)
		case <-s.closing:
			for {
				select {
				case e := <-s.queue:
					s.pass(e, &bound)
				default:
					if s.outbox != nil {
						close(s.outbox) // nothing else writes to it
					}
					return
				}
			}
		}
	}
}

// pass logs one event, and puts it into the outbox.
func (s *Sender) pass(e Event, bound *logBound) {
	if bound.allows(time.Now()) {
		s.totals.add(logged)
		s.options.Log.Info("a limit is used to a percentage", e.attributes()...)
	} else {
		s.totals.add(unlogged)
	}
	if s.hook == nil {
		return
	}
	select {
	case s.outbox <- e:
	default:
		s.totals.add(dropped)
	}
}

// sendAll posts events until the outbox is closed and empty.
func (s *Sender) sendAll() {
	for e := range s.outbox {
		s.totals.add(s.send(&e))
	}
}

// Close sends what waits, each event once more, until ctx ends. What is left then is lost, and
// counted. Later events are lost too.
func (s *Sender) Close(ctx context.Context) error {
	s.closed.Do(func() {
		close(s.closing)
		stop := context.AfterFunc(ctx, s.cancel)
		s.running.Wait()
		stop()
		s.cancel()
		for range len(s.queue) { // those of requests that ran while the queue was drained
			s.totals.add(unlogged)
			s.lose(unsent)
		}
		if s.hook != nil {
			s.hook.close()
		}
		s.totals.report(s.options.Log)
	})
	return nil
}

// A logBound allows maxLogged lines a second. It is for one goroutine.
type logBound struct {
	second int64
	lines  int
}

func (b *logBound) allows(now time.Time) bool {
	if second := now.Unix(); second != b.second {
		b.second, b.lines = second, 0
	}
	b.lines++
	return b.lines <= maxLogged
}
