// Package sample is the built-in backend of the Widget and Bulk-Sync API: real rows in SQLite, so
// that both surfaces can be used, developed against and load-tested without writing one.
//
//	routes.go            every endpoint in one table; 405, Allow and OPTIONS derive from it
//	openapi.yaml         the API as OpenAPI 3.1; the tests hold the server to it
//	docs_render_test.go  /docs, made of it
//	pages.go demo/ docs/ the pages for people
//	server.go            one request in order: path, method, caller, query, endpoint
//	form.go json.go      strict parsing of bodies
//	refusal.go           error answers
//	<resource>.go        one file per resource
//	answers.go passage.go the answer to a question
//	feed.go held.go      waiting for events, and how many requests may
//	stream.go            events as text/event-stream
//	origin.go full.go    the share of the storage that a request uses, and the 507
//	retention.go         deletion after 30 days
//	tokens.go secret.go  API tokens, and the secret that signs sessions
//	sqlite/              the rows and the index: all SQL
//	terms/               splits text of any language into index terms
//
// Every error is {"error":{"code","message"}}. A bulk request with a problem in any item is 422,
// stores nothing, and lists every problem in "items":[{"index","id","reason"}], with index from 0,
// and id if it could be read.
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

	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/owned"
	"github.com/weirlimit/weir/internal/sample/sqlite"
)

// Options configure a Backend.
type Options struct {
	// Dir is the data directory. It is required, and created with mode 0700 if it is missing.
	Dir string
	Now func() time.Time // nil means time.Now
	Log *slog.Logger     // nil means slog.Default
	// BusyTimeout is that of sqlite.Options. A request that waits longer is answered 503.
	BusyTimeout time.Duration
	// MaxData bounds the bytes of rows and indexes, divided into shares by package sqlite. Writes
	// beyond it are answered 507. 0 means no bound.
	MaxData int64
	// Callers configures how a caller is identified if the middleware has not done so. Sessions,
	// Tokens and Now are overwritten.
	Callers identity.Options
	// Heartbeat is the interval of keep-alive comments on a quiet event stream. 0 means 15 s.
	Heartbeat time.Duration
	Stall     time.Duration // deadline of each write to an event stream; 0 means 10 s
	// Welcome stores some documents and a coupon in workspace "demo" if Open creates it.
	Welcome bool
	// Watch is the interval of polling for other processes' events while a request waits. 0 means 1
	// s.
	Watch time.Duration
}

// A Backend serves both surfaces from one data directory, which other processes may use at the same
// time. It is safe for concurrent use.
type Backend struct {
	db        *sqlite.DB
	now       func() time.Time
	log       *slog.Logger
	secret    []byte // signs sessions
	sessions  *identity.Sessions
	tokens    *Tokens
	resolver  *identity.Resolver // for requests that bypass the middleware
	languages answer.Negotiator
	resources []*resource

	fulls            fulls
	feed             *feed
	held             *held
	heartbeat, stall time.Duration

	sweeping sync.WaitGroup
	stop     context.CancelFunc // ends sweeping
}

// ErrMaxData means that Options.MaxData is too small for an empty database.
var ErrMaxData = sqlite.ErrSmall

// ErrDamaged means that the database's file is damaged, or is another file.
var ErrDamaged = sqlite.ErrCorrupt

// databaseFile holds the rows, in the data directory.
const databaseFile = "sample.db"

// demo is the workspace that a new data directory starts with.
const demo = "demo"

// Open opens the data directory, and creates workspace "demo" if there is no workspace yet. It
// returns an error for a directory that is not writable, and for a file in it that is damaged,
// another program's or made by a newer weir.
func Open(ctx context.Context, o Options) (*Backend, error) {
	tokens, err := OpenTokens(ctx, o)
	if err != nil {
		return nil, err
	}
	b := &Backend{db: tokens.db, now: tokens.now, log: tokens.log, tokens: tokens, languages: answer.NewNegotiator(), resources: resources(routes())}
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

// positive returns a positive d, else fallback.
func positive(d, fallback time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return fallback
}

// prepare opens or creates everything of a Backend except its tokens.
func (b *Backend) prepare(ctx context.Context, o Options) error {
	made, err := b.db.AddFirstWorkspace(ctx, demo, b.now())
	if err != nil {
		return err
	}
	if made {
		b.log.Info("sample backend: made workspace", "workspace", demo)
	}
	if made && o.Welcome {
		if err := b.seedDemo(ctx, demo); err != nil {
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

// index indexes the pending documents. It can take minutes for a data directory without an index.
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

// MakeDir creates the data directory with mode 0700 if it does not exist, and returns an error if
// the directory is not writable.
func MakeDir(dir string) error {
	if dir == "" {
		return errors.New("open data directory: no directory is given")
	}
	if err := owned.MkdirAll(dir); err != nil {
		return fmt.Errorf("make data directory %s: %w; choose one that can be written", dir, reason(err))
	}
	probe, err := os.CreateTemp(dir, ".writable-*")
	if err != nil {
		err = owned.Explain(err)
		if hint := owned.HintOf(err, ""); hint != "" {
			return fmt.Errorf("write to data directory %s: %w", dir, err)
		}
		return fmt.Errorf("write to data directory %s: %w; choose one that can be written", dir, reason(err))
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// openDir creates the data directory and opens the database in it.
func openDir(ctx context.Context, o Options) (*sqlite.DB, error) {
	if err := MakeDir(o.Dir); err != nil {
		return nil, err
	}
	return sqlite.Open(ctx, filepath.Join(o.Dir, databaseFile), sqlite.Options{
		BusyTimeout: o.BusyTimeout,
		MaxBytes:    o.MaxData,
		NearlyFull:  func(share sqlite.Share, used, most int64) { warn(o, share, used, most) },
	})
}

// warn logs that a share of the storage is nearly full, or that more is in use than allowed.
func warn(o Options, share sqlite.Share, used, most int64) {
	message := "sample backend: over 80 % of a share of the storage is in use: once it is full, writes are answered 507"
	if used > most {
		message = "sample backend: more storage is in use than --max-data allows: writes are answered 507 until enough is deleted or the bound is raised"
	}
	o.Log.Warn(message, "share", share, "used", used, "bound", most, "max_data", o.MaxData)
}

// reason returns a file error without its path, for messages that have the path already.
func reason(err error) error {
	var e *fs.PathError
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}

// Sessions returns the verifier of this data directory's session tokens.
func (b *Backend) Sessions() *identity.Sessions { return b.sessions }

// Tokens returns the API tokens of the workspaces.
func (b *Backend) Tokens() *Tokens { return b.tokens }

// Ready returns an error if rows cannot be read.
func (b *Backend) Ready(ctx context.Context) error {
	if err := b.db.Ready(ctx); err != nil {
		return fmt.Errorf("sample backend: %w", err)
	}
	return nil
}

// Drain ends all event streams and answers requests that wait for events with the events there are.
// Later requests are not held open. Drain does not wait for any of that, and may be called more
// than once.
func (b *Backend) Drain() { b.feed.drain() }

// Close closes the data directory. It must be called after the last request has ended.
func (b *Backend) Close() error {
	b.feed.close()
	b.stop()
	b.sweeping.Wait()
	return b.db.Close()
}

// Handler returns the handler of both surfaces. It expects canonical paths: the caller of the
// handler must have resolved dot segments, empty segments and needless escapes. It uses the
// identity that the rate-limiting middleware verified, and verifies the caller itself if there is
// no middleware.
func (b *Backend) Handler() http.Handler { return http.HandlerFunc(b.serve) }

// newID returns a random id of at least 128 bits, with a prefix that names its kind.
func newID(prefix string) string { return prefix + "_" + rand.Text() }
