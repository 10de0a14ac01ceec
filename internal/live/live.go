// Package live holds the policy in force while a server runs, and replaces it: from its file, or
// from a text that an operator posts.
//
// A policy is replaced as a whole or not at all. A policy that cannot be read, has problems, or
// cannot be counted by the store is rejected with all its problems, and the policy in force stays.
// There may also be a candidate policy from a file of its own, under the same rules.
//
//	live.go   the API
//	slot.go   one policy: checked, put in force or rejected, reported
//	networks.go  the files of networks that it names
//	file.go   a file: whether it has changed
//	settle.go whether a changed file is complete
//	arrivals_*.go whether a file was renamed into place
package live

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policyfile"
)

// The values of State.Source.
const (
	Contract = "contract" // built in
	File     = "file"     // a file, which is watched
	Stream   = "stream"   // standard input or a pipe: it can be read only once
	Posted   = "posted"   // an operator's text, until the file changes or the process ends
)

// A Document is a policy as it was read.
type Document struct {
	Source string
	Path   string // its name in problems; for a File, its path
	Text   []byte
	*policyfile.File
}

// directoryOf returns the directory that the names of files of networks are relative to: that of
// the policy file, and for a stream the working directory. It is empty if there is none.
func directoryOf(source, path string) string {
	switch source {
	case File:
		return filepath.Dir(path)
	case Stream:
		return "."
	}
	return ""
}

// Parse reads a policy from text; path is its name in problems. Only a File or a Stream can name
// files of networks, unless r reads them. The error is a *policyfile.Error.
func Parse(r policyfile.Reader, source, path string, text []byte) (*Document, error) {
	if directory := directoryOf(source, path); r.Networks == nil && directory != "" {
		r.Networks = policyfile.NetworksIn(directory)
	}
	file, err := r.Parse(path, text)
	if err != nil {
		return nil, err
	}
	return &Document{Source: source, Path: path, Text: text, File: file}, nil
}

// Load reads the policy at path: as a File, or as a Stream if path is no regular file. The error is
// a *policyfile.Error if the policy is invalid, and one of package os if it cannot be read.
func Load(r policyfile.Reader, path string) (*Document, error) {
	text, info, err := readStable(path, os.Open, policyfile.MaxSize)
	if err != nil {
		return nil, fmt.Errorf("read policy: %w", err)
	}
	source := File
	if !info.Mode().IsRegular() {
		source = Stream
	}
	return Parse(r, source, path, text)
}

// Options are a Policy's settings; the zero value is useful.
type Options struct {
	// Reader reads policies, with the messages of the front door.
	Reader policyfile.Reader

	// Check returns why the store cannot count a policy that is otherwise valid; nil means that it
	// can count any. It is also called with single limiters, to find the ones that are the reason.
	Check func(weir.Policy) error

	// Candidate is the file of the candidate policy; empty means none. It may be missing or invalid
	// at first.
	Candidate string
	// Evaluate replaces the candidate; required with Candidate. After an error the earlier
	// candidate must still be evaluated.
	Evaluate func(*weir.Policy) error

	// Before, if set, is called just before each change of the policy in force. Its error rejects
	// the change.
	Before func(Change) error

	// OnState, if set, is called with the State of the policy in force after every attempt to
	// replace it. It must not block.
	OnState func(State)

	Now func() time.Time // nil means time.Now
	Log *slog.Logger     // nil means slog.Default()
}

// A Change replaces the policy in force.
type Change struct {
	By           string // as State.By
	Why          string // the author's reason; empty: none was given
	Source, Path string // of the new policy
	Version, Was string // see Version
}

// A Policy is the policy in force. It is safe for concurrent use.
type Policy struct {
	live      *slot
	candidate *slot // nil: none
}

// ErrFixed means that a policy cannot be reloaded: it came from no file.
var ErrFixed = errors.New("the policy did not come from a file that can be read again")

// New returns a Policy that starts with a document that is already in force. swap replaces it, such
// as (*weir.Decider).Swap; after an error the old policy must still be in force. New reads the
// candidate's file; its problems are in its State.
func New(start *Document, swap func(weir.Policy) error, o Options) (*Policy, error) {
	if start == nil || start.File == nil || swap == nil {
		return nil, errors.New("new live policy: a policy to start with, and a way to swap it, are required")
	}
	if o.Candidate != "" && o.Evaluate == nil {
		return nil, errors.New("new live policy: a candidate needs an Evaluate")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	p := &Policy{live: newSlot("policy", start.Source, start.Path, o)}
	p.live.check, p.live.onState, p.live.before = o.Check, o.OnState, o.Before
	p.live.put = func(p *weir.Policy) error { return swap(*p) }
	p.live.begin(start)
	if o.Candidate != "" {
		p.candidate = newSlot("candidate policy", File, o.Candidate, o)
		p.candidate.put = o.Evaluate
		p.candidate.state.Store(&State{Path: o.Candidate})
		// the result is in its State and in the log
		_ = p.candidate.reload(context.Background(), Start)
	}
	return p, nil
}

// Authors of a change that no one asked for: see State.By.
const (
	Start = "start"
	Watch = "watch" // of the file
)

// A State describes a policy and the last attempt to replace it. It must not be modified.
type State struct {
	Policy  weir.Policy
	Version string // see Version
	// Contract, File, Stream or Posted; empty: a candidate that was never valid
	Source string
	// the watched file, also while a Posted policy is in force; empty: none
	Path     string
	Text     []byte               // as it was read
	Lines    []int                // of Text, on which each limiter begins, from 1
	Warnings []policyfile.Problem // valid, but probably a mistake
	Since    time.Time            // when it came into force
	By       string               // Start, Watch, or the author that Reload or Post was given
	Last     Attempt              // to replace it
}

// An Attempt is an attempt to put a policy in force.
type Attempt struct {
	At       time.Time
	By       string
	OK       bool                 // it is in force, or equals the one that was
	Problems []policyfile.Problem // why it is not
}

// Version returns 8 hex digits that identify a policy in a log (policyfile.Version).
func Version(p weir.Policy) string {
	return policyfile.Version(p)
}

// State returns the State of the policy in force. It never blocks.
func (p *Policy) State() State { return *p.live.state.Load() }

// Candidate returns the State of the candidate, and false if there is no candidate file.
func (p *Policy) Candidate() (State, bool) {
	if p.candidate == nil {
		return State{}, false
	}
	return *p.candidate.state.Load(), true
}

// Reload reads the policy's file and the candidate's again, and puts changes in force; they replace
// a posted policy. by is the author. Everything is logged. The error is a *policyfile.Error if a
// policy is rejected, and ErrFixed if there is no file.
func (p *Policy) Reload(ctx context.Context, by string) error {
	if p.candidate == nil {
		return p.live.reload(ctx, by)
	}
	err := p.live.reload(ctx, by)
	if errors.Is(err, ErrFixed) {
		err = nil
	}
	return errors.Join(err, p.candidate.reload(ctx, by))
}

// Post puts a text in force until the file changes, is reloaded, or the process ends. Other nodes
// are not informed. A text over policyfile.MaxSize is rejected, so at most one byte more of an
// endless one need be read. The error is a *policyfile.Error; then the policy in force stays.
func (p *Policy) Post(ctx context.Context, author Author, text []byte) error {
	return p.live.post(ctx, author, text)
}

// An Author is who changes a policy, and why.
type Author struct {
	By  string // as State.By
	Why string // for Change; may be empty
}

// lookEvery is the time between two looks at the files.
const lookEvery = 200 * time.Millisecond

// Watch looks at the files, also those of networks, until ctx ends, and puts their changes in force
// within three seconds, even if a file is replaced all the time, but never a text that may be
// incomplete. It returns when ctx has ended.
func (p *Policy) Watch(ctx context.Context) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	p.live.watch()
	defer p.live.unwatch()
	if p.candidate != nil {
		p.candidate.watch()
		defer p.candidate.unwatch()
	}
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			p.live.look(ctx, now)
			if p.candidate != nil {
				p.candidate.look(ctx, now)
			}
		}
	}
}
