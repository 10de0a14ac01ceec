// Package sample is the built-in backend of the Widget and Bulk-Sync API: real rows in SQLite, so that both surfaces can
// be used, developed against and load-tested without writing one.
//
//	routes.go            every endpoint in one table; 405, Allow and OPTIONS derive from it
//	openapi.yaml         the API as OpenAPI 3.1; the tests hold the server to it
//	docs.go              /docs, made of it
//	pages.go demo/ docs/ the pages for people
//	server.go            one request in order: path, method, caller, query, endpoint
//	form.go json.go      what callers send, read strictly
//	refusal.go           what they are told when it is not right
//	<resource>.go        one file per resource
//	answers.go passage.go what a question is answered with
//	feed.go held.go      who waits for events, and how many may
//	stream.go            events as text/event-stream
//	origin.go full.go    whose share of the storage a request uses, and what it is told if that is used up
//	retention.go         what goes after 30 days
//	tokens.go secret.go  what signs and admits callers
//	sqlite/              the rows and the index; all SQL is there
//	words/               what the index holds: text of any language as terms
//
// Every error is {"error":{"code","message"}}. A bulk request that has anything wrong with its items is 422, stores
// nothing, and lists each problem beside them: "items":[{"index","id","reason"}], index from 0, id where it could be read.
package sample

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/sample/sqlite"
)

// Options say where a Backend keeps its rows and what it is run with.
type Options struct {
	Dir         string           // the data directory, made with mode 0700 where it is missing; required
	Now         func() time.Time // nil: time.Now
	Log         *slog.Logger     // nil: slog.Default()
	BusyTimeout time.Duration    // how long a write waits for another process's before it answers 503, 15 times as long for ours; 0 = 2 s
	MaxData     int64            // bytes that rows and indexes may take, shared out as package sqlite says; beyond it writes answer 507; 0 = no bound
	Callers     identity.Options // how a caller's address is found where no limiter covers a request; Sessions, Tokens and Now are ours
	Heartbeat   time.Duration    // after which a quiet event stream shows that it lives; 0 = 15 s
	Stall       time.Duration    // how long a client may take over one write to its event stream; 0 = 10 s
	Welcome     bool             // give workspace "demo", where it is made here, a few documents and a coupon to begin with
	Watch       time.Duration    // between two looks for other processes' events, while anybody waits; 0 = 1 s
}

// A Backend serves both surfaces from one data directory, which other processes may use at the same time. It is safe for
// concurrent use.
type Backend struct {
	db        *sqlite.DB
	now       func() time.Time
	log       *slog.Logger
	secret    []byte // signs sessions
	sessions  *identity.Sessions
	tokens    *Tokens
	resolver  *identity.Resolver // for requests that come past the middleware
	speaks    httplimit.Speaker
	resources []*resource

	fulls            fulls
	feed             *feed
	held             *held
	heartbeat, stall time.Duration

	sweeping sync.WaitGroup
	stop     context.CancelFunc // ends it
}

// ErrMaxData means that Options.MaxData is too small for an empty database.
var ErrMaxData = sqlite.ErrSmall

// databaseFile holds the rows, in the data directory.
const databaseFile = "sample.db"

// demo is the workspace that a new data directory starts with.
const demo = "demo"

// Open opens the data directory, and makes workspace "demo" where there is no workspace yet. The error says what stands in
// the way: a directory that cannot be written, a file that is damaged, another program's or made by a newer weir.
func Open(ctx context.Context, o Options) (*Backend, error) {
	tokens, err := OpenTokens(ctx, o)
	if err != nil {
		return nil, err
	}
	b := &Backend{db: tokens.db, now: tokens.now, log: tokens.log, tokens: tokens, speaks: httplimit.NewSpeaker(), resources: resources(routes())}
	b.heartbeat, b.stall = positive(o.Heartbeat, 15*time.Second), positive(o.Stall, 10*time.Second)
	b.feed, b.held = newFeed(b.db, positive(o.Watch, time.Second), b.log), newHeld()
	running, stop := context.WithCancel(context.Background())
	b.stop = stop
	if err := b.prepare(ctx, o); err != nil {
		b.Close()
		return nil, fmt.Errorf("open data directory %s: %w", o.Dir, err)
	}
	b.sweeping.Go(func() { b.sweepHourly(running) })
	return b, nil
}

// positive is d, or the fallback where d says nothing.
func positive(d, fallback time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return fallback
}

// prepare reads or makes what a Backend has beyond tokens.
func (b *Backend) prepare(ctx context.Context, o Options) error {
	made, err := b.db.AddFirstWorkspace(ctx, demo, b.now())
	if err != nil {
		return err
	}
	if made {
		b.log.Info("sample backend: made workspace", "workspace", demo)
	}
	if made && o.Welcome {
		if err := b.greet(ctx, demo); err != nil {
			return err
		}
	}
	if err := b.index(ctx); err != nil {
		return err
	}
	if b.secret, err = sessionSecret(ctx, b.db, o.Dir); err != nil {
		return err
	}
	key, err := identity.NewSecretKey(keyID, b.secret)
	if err != nil {
		return err
	}
	b.sessions, err = identity.NewSessions(identity.SessionsOptions{Keys: []identity.SessionKey{key}, Issuer: issuer})
	if err != nil {
		return err
	}
	o.Callers.Sessions, o.Callers.Tokens, o.Callers.Now = b.sessions, b.tokens, b.now
	b.resolver, err = identity.New(o.Callers)
	return err
}

// index makes sure that every document is found, which takes a while where a data directory is new to it.
func (b *Backend) index(ctx context.Context) error {
	pending, err := b.db.Pending(ctx)
	if err != nil || pending == 0 {
		return err
	}
	b.log.Info("sample backend: indexing documents, half a minute for every 10,000", "documents", pending)
	if err := b.db.Index(ctx); err != nil {
		return fmt.Errorf("index the documents: %w", err)
	}
	b.log.Info("sample backend: indexed documents", "documents", pending)
	return nil
}

// MakeDir makes the data directory where there is none, for its owner alone, and sees whether it can be written.
func MakeDir(dir string) error {
	if dir == "" {
		return errors.New("open data directory: none is named")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make data directory %s: %w; choose one that can be written", dir, reason(err))
	}
	probe, err := os.CreateTemp(dir, ".writable-*")
	if err != nil {
		return fmt.Errorf("write to data directory %s: %w; choose one that can be written", dir, reason(err))
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// openDir makes the data directory, and opens the database in it.
func openDir(ctx context.Context, o Options) (*sqlite.DB, error) {
	if err := MakeDir(o.Dir); err != nil {
		return nil, err
	}
	return sqlite.Open(ctx, filepath.Join(o.Dir, databaseFile), sqlite.Options{
		BusyTimeout: o.BusyTimeout,
		MaxBytes:    o.MaxData,
		Near:        func(share sqlite.Share, used, most int64) { warn(o, share, used, most) },
	})
}

// warn tells the operator in time, or at the start, that a share of the storage is nearly used up, or that more is in use
// than there may be.
func warn(o Options, share sqlite.Share, used, most int64) {
	message := "sample backend: four fifths of a share of the storage are in use: once all of it is, writes answer 507"
	if used > most {
		message = "sample backend: more storage is in use than there may be: writes answer 507 until enough is deleted or the bound is raised"
	}
	o.Log.Warn(message, "share", share, "used", used, "bound", most, "max_data", o.MaxData)
}

// reason is a file error without the path, where the path is told already.
func reason(err error) error {
	var e *fs.PathError
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}

// Sessions verifies this data directory's session tokens.
func (b *Backend) Sessions() *identity.Sessions { return b.sessions }

// Tokens is the workspaces' API tokens.
func (b *Backend) Tokens() *Tokens { return b.tokens }

// Ready says whether rows can be read.
func (b *Backend) Ready(ctx context.Context) error {
	if err := b.db.Ready(ctx); err != nil {
		return fmt.Errorf("sample backend: %w", err)
	}
	return nil
}

// Drain ends what is held open: event streams end, and who waits for events is answered with what there is. From then on
// nothing is held any more. It does not wait for any of that, and may be called more than once.
func (b *Backend) Drain() { b.feed.drain() }

// Close lets go of the data directory. No request may be under way.
func (b *Backend) Close() error {
	b.feed.close()
	b.stop()
	b.sweeping.Wait()
	return b.db.Close()
}

// Handler serves canonical paths: whoever calls it has resolved dot segments, empty segments and needless escapes. It
// finds the caller that the rate-limiting middleware verified, or verifies by itself where there was none.
func (b *Backend) Handler() http.Handler { return http.HandlerFunc(b.serve) }

// newID returns a random id of 128 bits and more, with a prefix that says what of.
func newID(prefix string) string { return prefix + "_" + rand.Text() }
