package live

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policyfile"
)

// A slot holds one policy that is in force, or evaluated. It makes one attempt at a time to replace
// it.
type slot struct {
	what    string // for log lines
	reader  policyfile.Reader
	check   func(weir.Policy) error // nil: any policy is valid
	put     func(*weir.Policy) error
	before  func(Change) error // nil: not called
	onState func(State)        // nil: not called
	now     func() time.Time
	log     *slog.Logger

	state atomic.Pointer[State]

	directory string // that the names of files of networks are relative to; empty: none

	turn chan struct{} // a mutex with a context; it guards the fields below
	file *watched      // nil: the policy in force came from no file
	// the files that the policy in force names, and those of pending, by their names
	networks map[string]*networksFile
	// the file's text if it was rejected and names networks; nil: there is none
	pending []byte
	judged  Attempt // the last attempt that was decided
	// the last failure to read the file that was reported; empty after a success
	readError string
}

func newSlot(what, source, path string, o Options) *slot {
	s := &slot{what: what, reader: o.Reader, now: o.Now, log: o.Log, turn: make(chan struct{}, 1)}
	s.directory, s.networks = directoryOf(source, path), make(map[string]*networksFile)
	if source == File {
		s.file = &watched{path: path, maxSize: policyfile.MaxSize}
	}
	return s
}

// begin records that d is already in force.
func (s *slot) begin(d *Document) {
	now := s.now()
	s.judged = Attempt{At: now, By: Start, OK: true}
	if s.file != nil {
		s.file.judge(d.Text)
	}
	s.beginNetworks(d.Policy)
	s.state.Store(s.newState(d, now, Start))
}

func (s *slot) newState(d *Document, at time.Time, by string) *State {
	state := &State{
		Policy: d.Policy, Version: Version(d.Policy), Source: d.Source, Text: d.Text, Lines: d.Lines, Warnings: d.Warnings,
		Since: at, By: by, Last: s.judged,
	}
	if s.file != nil {
		state.Path = s.file.path
	}
	return state
}

// acquire waits for its turn. If it returns nil the caller must call release.
func (s *slot) acquire(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *slot) release() { <-s.turn }

// reload offers the current content of the file.
func (s *slot) reload(ctx context.Context, by string) (err error) {
	if err := s.acquire(ctx); err != nil {
		return fmt.Errorf("reload: %w", err)
	}
	defer s.release()
	s.readNetworks()
	defer func() {
		if err != nil {
			_ = s.refresh(by) // the result is logged
		}
	}()
	switch {
	case s.file == nil && len(s.networks) > 0:
		return s.unchanged(by, s.state.Load().Path)
	case s.file == nil:
		return fmt.Errorf("reload: %w: %s; weir serve --policy FILE has one", ErrFixed, s.origin())
	}
	text, err := s.file.now()
	if err != nil {
		s.unreadable(by, err)
		return fmt.Errorf("reload: %w", err)
	}
	return s.offer(Author{By: by}, File, s.file.path, text)
}

// origin describes where a policy came from that is from no file.
func (s *slot) origin() string {
	switch s.state.Load().Source {
	case Contract:
		return "it is the built-in contract"
	case Posted:
		return "it was posted, and the previous one did not come from a file"
	}
	return "it was read from standard input or a pipe, which can be read only once"
}

// post offers a text that an operator sent.
func (s *slot) post(ctx context.Context, author Author, text []byte) error {
	if err := s.acquire(ctx); err != nil {
		return fmt.Errorf("post: %w", err)
	}
	defer s.release()
	return s.offer(author, Posted, "the posted policy", bytes.Clone(text[:min(len(text), policyfile.MaxSize+1)]))
}

// watch starts to watch the file.
func (s *slot) watch() {
	s.turn <- struct{}{}
	defer s.release()
	if s.file != nil {
		s.file.follow()
	}
	for _, f := range s.networks {
		f.follow()
	}
}

// unwatch closes the descriptors of the watch.
func (s *slot) unwatch() {
	s.turn <- struct{}{}
	defer s.release()
	if s.file != nil {
		s.file.close()
	}
	for _, f := range s.networks {
		f.close()
	}
}

// look offers the file's text if it has changed and is complete, and what the files of networks
// have.
func (s *slot) look(ctx context.Context, now time.Time) {
	if s.acquire(ctx) != nil {
		return
	}
	defer s.release()
	changed := s.lookAtNetworks(now)
	if s.file != nil {
		s.lookAtFile(now)
	}
	if changed {
		s.renew()
	}
}

func (s *slot) lookAtFile(now time.Time) {
	text, changed, err := s.file.look(now)
	switch {
	case err != nil:
		s.unreadable(Watch, err)
	case changed:
		_ = s.offer(Author{By: Watch}, File, s.file.path, text) // the result is logged
	case s.readError != "" && s.file.failures == 0 && s.file.change == nil:
		s.log.Info("the "+s.what+"'s file can be read again, and is unchanged", "path", s.file.path)
		s.readError = ""
		s.attempted(s.judged)
	}
}

// offer puts a policy in force or rejects it, and reports the result.
func (s *slot) offer(author Author, source, path string, text []byte) error {
	s.readError = ""
	by := author.By
	old := s.state.Load()
	if source == File && old.Source == File && bytes.Equal(text, old.Text) {
		s.pending = nil
		return s.unchanged(by, path)
	}
	d, err := Parse(s.readerOf(source), source, path, text)
	if err == nil {
		err = s.accept(author, d)
	}
	if err != nil {
		var invalid *policyfile.Error
		if !errors.As(err, &invalid) {
			invalid = &policyfile.Error{Problems: []policyfile.Problem{{File: path, Message: err.Error()}}}
		}
		s.refuse(by, path, invalid.Problems)
		if source == File {
			s.pending = nil
			if s.lacksNetworks() {
				s.pending = text
			}
		}
		s.prune()
		if !errors.As(err, new(*policyfile.Error)) {
			return errors.Join(invalid, err)
		}
		return invalid
	}
	s.judged = Attempt{At: s.now(), By: by, OK: true}
	state := s.newState(d, s.judged.At, by)
	s.state.Store(state)
	s.pending = nil
	s.prune()
	for _, w := range d.Warnings {
		all := []any{"at", fmt.Sprintf("%s:%d:%d", w.File, w.Line, w.Column), "warning", w.Message}
		s.log.Warn("the new "+s.what+" is valid, with a warning", withHint(all, w)...)
	}
	all := []any{"source", source, "path", path, "version", state.Version, "was", old.Version, "limiters", len(d.Policy.Limiters), "by", by}
	counts := "counts continue"
	if names := anew(d.Policy, old); names != "" {
		counts, all = "counts continue, except those of windows that begin anew", append(all, "anew", names)
	}
	s.log.Info("the "+s.what+" was replaced; "+counts, all...)
	s.notify()
	return nil
}

// maxAnew is the max number of windows that a line of the log names.
const maxAnew = 10

// anew names the windows of a policy that count from zero once it has replaced the one of old. It
// is empty if there are none, or if old has no policy.
func anew(p weir.Policy, old *State) string {
	if old.Source == "" {
		return ""
	}
	var names []string
	n := 0
	for l, w := range p.Anew(old.Policy) {
		if n++; n <= maxAnew {
			names = append(names, l.Name+": "+w.String())
		}
	}
	if n > maxAnew {
		names = append(names, fmt.Sprint(n-maxAnew, " more"))
	}
	return strings.Join(names, ", ")
}

// accept puts d in force if the store can count it.
func (s *slot) accept(author Author, d *Document) error {
	if s.check != nil {
		if err := s.check(d.Policy); err != nil {
			return &policyfile.Error{Problems: s.found(d, err)}
		}
	}
	if s.before != nil {
		if err := s.before(Change{By: author.By, Why: author.Why, Source: d.Source, Path: d.Path, Version: Version(d.Policy), Was: s.state.Load().Version}); err != nil {
			return err
		}
	}
	err := s.put(&d.Policy)
	var bad *weir.PolicyError
	if !errors.As(err, &bad) {
		return err
	}
	found := make([]policyfile.Problem, len(bad.Problems))
	for i, p := range bad.Problems {
		found[i] = d.problem(p.Limiter, p.Message)
	}
	return &policyfile.Error{Problems: found}
}

// found returns a problem for each limiter that a failed check of the whole policy is about.
func (s *slot) found(d *Document, all error) []policyfile.Problem {
	var found []policyfile.Problem
	for i, l := range d.Policy.Limiters {
		if err := s.check(weir.Policy{Limiters: []weir.Limiter{l}}); err != nil {
			found = append(found, d.problem(i, err.Error()))
		}
	}
	if found == nil {
		found = append(found, d.problem(-1, all.Error()))
	}
	return found
}

// problem returns a problem of the limiter with that index, or, for -1, of the policy.
func (d *Document) problem(limiter int, message string) policyfile.Problem {
	p := policyfile.Problem{File: d.Path, Message: message}
	if limiter >= 0 && limiter < len(d.Lines) {
		p.Line, p.Column, p.Path = d.Lines[limiter], 1, fmt.Sprintf("limiters[%d]", limiter)
	}
	return p
}

// maxLogged is how many problems of one policy are logged; State has all.
const maxLogged = 10

// refuse records and logs why an offered policy is not in force.
func (s *slot) refuse(by, path string, problems []policyfile.Problem) {
	s.judged = Attempt{At: s.now(), By: by, Problems: problems}
	s.log.Error("the new "+s.what+" is rejected, and the one in force stays", "path", path, "problems", len(problems), "by", by)
	for i, p := range problems {
		if i == maxLogged {
			s.log.Error(fmt.Sprintf("%d more problems are not logged; 'weir policy check FILE' lists all", len(problems)-i))
			break
		}
		s.log.Error("a problem of the rejected "+s.what, withHint([]any{"problem", p.String()}, p)...)
	}
	s.attempted(s.judged)
}

// withHint adds the hint of a problem to the attributes of its line in the log, if it has one.
func withHint(all []any, p policyfile.Problem) []any {
	if p.Hint != "" {
		all = append(all, "hint", p.Hint)
	}
	return all
}

// unreadable reports that the file cannot be read. A watch reports it once.
func (s *slot) unreadable(by string, err error) {
	message := err.Error()
	if errors.Is(err, os.ErrNotExist) {
		message = "the file is gone"
	}
	if by == Watch && s.readError == message {
		return
	}
	s.readError = message
	s.log.Error("the "+s.what+" cannot be read, so the one in force stays", "path", s.file.path, "error", err, "by", by)
	s.attempted(Attempt{At: s.now(), By: by, Problems: []policyfile.Problem{{File: s.file.path, Message: message}}})
}

// attempted records an attempt that did not change the policy.
func (s *slot) attempted(a Attempt) {
	state := *s.state.Load()
	state.Last = a
	s.state.Store(&state)
	s.notify()
}

func (s *slot) notify() {
	if s.onState != nil {
		s.onState(*s.state.Load())
	}
}
