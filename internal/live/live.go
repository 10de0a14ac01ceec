// Package live holds the policy in force while a server runs, and replaces it: from its file, or from a text that an operator posts.
//
// A policy takes the place of another whole or not at all. What cannot be read, has problems or cannot be counted by the store is
// refused with everything that is wrong with it, and what was in force stays so. Beside the policy there may be a candidate, from
// a file of its own, by the same rules.
//
//	live.go   what people call
//	slot.go   one policy: judged, put in force or refused, told
//	file.go   its file: whether it has changed
//	settle.go whether a changed file is complete
//	arrivals_*.go whether a file was renamed into place
package live

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policyfile"
)

// Where a policy can come from: State.Source.
const (
	Contract = "contract" // built in
	File     = "file"     // a file, which is watched
	Stream   = "stream"   // standard input, a pipe: read once, and gone
	Posted   = "posted"   // an operator's text, until the file changes or the process ends
)

// A Document is a policy as it was read.
type Document struct {
	Source string
	Path   string // what problems call it; of a File, where it is
	Text   []byte
	*policyfile.File
}

// Parse reads a policy from text that is at hand; path stands for it in problems. The error is a *policyfile.Error.
func Parse(r policyfile.Reader, source, path string, text []byte) (*Document, error) {
	file, err := r.Parse(path, text)
	if err != nil {
		return nil, err
	}
	return &Document{Source: source, Path: path, Text: text, File: file}, nil
}

// Load reads the policy at path: a File, or, where it is none that could be read twice, a Stream. The error is a *policyfile.Error
// where there is no valid policy, and one of package os where nothing can be read.
func Load(r policyfile.Reader, path string) (*Document, error) {
	text, info, err := readStill(path, os.Open)
	if err != nil {
		return nil, err
	}
	source := File
	if !info.Mode().IsRegular() {
		source = Stream
	}
	return Parse(r, source, path, text)
}

// Options are a Policy's settings; the zero value is useful.
type Options struct {
	// Reader reads policies, with the messages that the front door has.
	Reader policyfile.Reader

	// Check says why the store cannot count a policy that is otherwise valid; nil means that it can count any. It is also asked of
	// single limiters, to find those that are meant.
	Check func(weir.Policy) error

	// Candidate is the file of the candidate policy; empty means that there is none. It may be missing or invalid at first.
	Candidate string
	// Evaluate puts the candidate in the place of an earlier one; required with Candidate. After an error the earlier one still is.
	Evaluate func(*weir.Policy) error

	// Before, if set, hears of each change of the policy in force just before it is made, and by an error refuses it.
	Before func(Change) error

	// Told, if set, hears how it stands with the policy in force after every attempt to replace it. It must not block.
	Told func(State)

	Now func() time.Time // nil means time.Now
	Log *slog.Logger     // nil means slog.Default()
}

// A Change is one policy that takes the place of another.
type Change struct {
	By           string // as State.By
	Source, Path string // of what comes into force
	Version, Was string // see Version
}

// A Policy is the policy in force. It is safe for concurrent use.
type Policy struct {
	live      *slot
	candidate *slot // nil: none
}

// ErrFixed is why a policy is never read again: it came from no file.
var ErrFixed = errors.New("the policy came from no file that could be read again")

// New returns the policy in force, which start is already. swap puts another in its place, such as (*weir.Decider).Swap; after an
// error of it the old one must still be in force. The candidate's file is read here; what is wrong with it is in its State.
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
	p.live.check, p.live.told, p.live.before = o.Check, o.Told, o.Before
	p.live.put = func(p *weir.Policy) error { return swap(*p) }
	p.live.begin(start)
	if o.Candidate != "" {
		p.candidate = newSlot("candidate policy", File, o.Candidate, o)
		p.candidate.put = o.Evaluate
		p.candidate.state.Store(&State{Path: o.Candidate})
		_ = p.candidate.reload(context.Background(), Start) // it is in its State, and in the log
	}
	return p, nil
}

// Who a change is said to be by, where it is nobody.
const (
	Start = "start"
	Watch = "watch" // of the file
)

// A State is how it stands with a policy. It is read only.
type State struct {
	Policy   weir.Policy
	Version  string               // see Version
	Source   string               // Contract, File, Stream or Posted; empty: a candidate that was never valid
	Path     string               // the file that is watched, also while a Posted policy holds instead; empty: none
	Text     []byte               // as it was read
	Lines    []int                // of Text, on which each limiter begins, from 1
	Warnings []policyfile.Problem // what is valid but surprising
	Since    time.Time            // when it came into force
	By       string               // who did that: Start, Watch, or what Reload and Post were told
	Last     Attempt              // to replace it
}

// An Attempt is one at putting a policy in force.
type Attempt struct {
	At       time.Time
	By       string
	OK       bool                 // it is in force, or is the same as what was
	Problems []policyfile.Problem // why it is not
}

// Version returns what tells one policy from another in a log: 8 hex digits that are the same on every node which has the same
// limiters, whatever the layout and the comments of its file.
func Version(p weir.Policy) string {
	sum := sha256.Sum256(policyfile.Marshal(p))
	return hex.EncodeToString(sum[:4])
}

// State returns how it stands with the policy in force. It never waits.
func (p *Policy) State() State { return *p.live.state.Load() }

// Candidate returns how it stands with the candidate, and false where there is no file of one.
func (p *Policy) Candidate() (State, bool) {
	if p.candidate == nil {
		return State{}, false
	}
	return *p.candidate.state.Load(), true
}

// Reload reads the policy's file again, and the candidate's, and puts in force what has changed there; a posted policy gives way. by
// is who asks. Everything is logged; the error, for who asks, is a *policyfile.Error where a policy is refused, and ErrFixed where
// there is no file.
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

// Post puts a policy in force that somebody sends, until the file changes, is reloaded, or the process ends: other nodes do not hear
// of it. A text over policyfile.MaxSize is refused, so of an endless one no more than a byte above that need be read. The error
// is a *policyfile.Error; then what was in force stays so.
func (p *Policy) Post(ctx context.Context, by string, text []byte) error {
	return p.live.post(ctx, by, text)
}

// lookEvery is how often the files are looked at.
const lookEvery = 200 * time.Millisecond

// Watch looks at the files until ctx ends, and puts in force what they become: within three seconds, also if a file is replaced all the
// time, but never a text that its writer may not have finished. It returns when ctx has ended.
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
