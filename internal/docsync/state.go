package docsync

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gofrs/flock"

	"github.com/weirlimit/weir/internal/plaintext"
)

// A target identifies a state: a workspace of a server, the id of the token last used for it, and
// the base of links.
type target struct{ to, workspace, token, base string }

// A record is one line of the state file. The first line identifies the target; each of the others
// is an acknowledged batch.
type record struct {
	Format int    `json:"weir_sync,omitempty"` // 1
	To     string `json:"to,omitempty"`
	// as the server reports; empty if it reports none
	Workspace string            `json:"workspace,omitempty"`
	Token     string            `json:"token,omitempty"` // its id
	Base      string            `json:"base,omitempty"`
	Stored    map[string]string `json:"stored,omitempty"`
	Deleted   []string          `json:"deleted,omitempty"`
}

const (
	format      = 1
	maxLine     = 2 << 20 // bytes of a record; 500 ids fit even if every character is escaped
	maxObsolete = 2000    // obsolete entries before the file is compacted
)

// A state holds the acknowledged documents, in memory and as a journal: each batch is one line,
// written and synced at once. If kill -9 or a full disk leaves an incomplete last line, that line
// is dropped when the file is next opened. At worst the last batch is sent again, which changes
// nothing on the server.
type state struct {
	path    string
	target  target
	lock    *flock.Flock // nil if read-only
	file    *os.File     // nil if read-only, or if the file is still to be rewritten
	length  int64        // bytes of the complete lines
	entries int          // entries in the file, including obsolete ones
	was     target       // the file's target, without the server
	// the file is missing or is another target's; the first acknowledged batch rewrites it
	stale  bool
	broken bool // the file ends in an incomplete line that could not be removed
	known  map[string]digest

	bound      bool   // the file names a target
	workspace  string // in the file; empty if none
	otherToken bool   // the file names another token
	confirmed  bool   // the target needs no confirmation by the server
}

// stateOptions configure openState.
type stateOptions struct {
	startOver bool // start over if the state is another target's
	newBase   bool // accept another base
	readOnly  bool // neither lock nor write anything
}

func openState(path string, t target, o stateOptions) (*state, error) {
	path, err := followed(path)
	if err != nil {
		return nil, err
	}
	s := &state{path: path, target: t, known: map[string]digest{}}
	if !o.readOnly {
		// before creating a lock file next to a file that may not be a state
		if err := s.checkFirstLine(); err != nil {
			return nil, err
		}
		if err := s.takeLock(); err != nil {
			return nil, err
		}
		s.sweep()
	}
	if err := s.open(o); err != nil {
		_ = s.close() // err is the reason
		return nil, err
	}
	return s, nil
}

// followed returns the target of a symbolic link. That file is locked and replaced, and the link is
// kept.
func followed(path string) (string, error) {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&fs.ModeSymlink == 0 {
		return path, nil
	}
	end, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", unreadable(path, err)
	}
	return end, nil
}

func unreadable(path string, err error) error {
	return &Failure{fmt.Errorf("read the state %s: %w", plaintext.Line(path, 300), bare(err)), "give the path of the state with --state FILE"}
}

// checkFirstLine rejects a file whose first line is not that of a state.
func (s *state) checkFirstLine() error {
	file, err := s.reading()
	if file == nil {
		return err
	}
	defer file.Close()
	line, err := bufio.NewReaderSize(file, maxLine).ReadSlice('\n')
	if err == io.EOF && len(line) == 0 {
		return nil
	}
	if r, bad := parse(line); err != nil || bad != nil || r.Format != format {
		return s.damaged(1)
	}
	return nil
}

// sweep removes temporary files left by a rewrite that was killed. The lock is held, so no rewrite
// is in progress.
func (s *state) sweep() {
	files, _ := os.ReadDir(filepath.Dir(s.path)) // a folder that cannot be listed is left as it is
	for _, f := range files {
		number, ok := strings.CutPrefix(f.Name(), "."+filepath.Base(s.path)+".new-")
		if ok && f.Type().IsRegular() && number != "" && strings.Trim(number, "0123456789") == "" {
			_ = os.Remove(filepath.Join(filepath.Dir(s.path), f.Name()))
		}
	}
}

func (s *state) takeLock() error {
	s.lock = flock.New(s.path+".lock", flock.SetPermissions(0o600))
	ok, err := s.lock.TryLock()
	switch {
	case err != nil:
		return s.unwritable(err)
	case !ok:
		return &Failure{fmt.Errorf("another sync uses the state %s", plaintext.Line(s.path, 300)), "wait for it to end; another folder or target needs a --state of its own"}
	}
	return nil
}

func (s *state) open(o stateOptions) error {
	whole, err := s.read(o)
	if err != nil || o.readOnly {
		return err
	}
	s.confirmed = s.bound && !s.otherToken
	if s.length == 0 {
		s.stale = true // bind the file only to a target that the server has accepted
	}
	if s.stale || s.otherToken {
		return nil
	}
	if s.entries > 2*len(s.known)+maxObsolete {
		if err := s.rewrite(); err != nil {
			return s.unwritable(err)
		}
		whole = true
	}
	return s.reopen(whole)
}

// reopen opens the file to append to it. If it is not whole, it removes the incomplete last line.
func (s *state) reopen(whole bool) (err error) {
	if s.file, err = os.OpenFile(s.path, os.O_WRONLY|os.O_APPEND, 0); err == nil && !whole {
		err = s.file.Truncate(s.length)
	}
	if err != nil {
		return s.unwritable(err)
	}
	return nil
}

func (s *state) unwritable(err error) error {
	return &Failure{fmt.Errorf("write the state %s: %w", plaintext.Line(s.path, 300), bare(err)), "give another path with --state FILE"}
}

// reading opens the file to read it. It returns nil if there is no file.
func (s *state) reading() (*os.File, error) {
	// before opening it, which would block on a pipe until there is a writer
	info, err := os.Stat(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err == nil && !info.Mode().IsRegular():
		return nil, &Failure{fmt.Errorf("the state %s is not a regular file", plaintext.Line(s.path, 300)), "give the path of the state with --state FILE"}
	}
	file, err := os.Open(s.path)
	if err != nil {
		return nil, unreadable(s.path, err)
	}
	return file, nil
}

// read reads the acknowledged documents, and reports whether the last line is complete. A state of
// another target is an error, unless o starts it over.
func (s *state) read(o stateOptions) (whole bool, err error) {
	file, err := s.reading()
	if file == nil {
		return true, err
	}
	defer file.Close()
	lines := bufio.NewReaderSize(file, maxLine)
	for number := 1; ; number++ {
		line, err := lines.ReadSlice('\n')
		switch {
		case err == io.EOF && len(line) == 0:
			return true, nil
		case err == io.EOF && number > 1:
			return false, nil // incomplete
		case err != nil:
			return false, s.damaged(number)
		}
		r, bad := parse(line)
		if _, more := lines.Peek(1); bad != nil && more != nil && number > 1 {
			// the last line: after a power failure its end may be on disk without its middle
			return false, nil
		}
		switch {
		case bad != nil || number == 1 && r.Format != format:
			return false, s.damaged(number)
		case number == 1 && r.To != s.target.to:
			return true, s.otherServer(r, o)
		case number == 1:
			s.bound, s.workspace, s.target.workspace = true, r.Workspace, r.Workspace
			s.otherToken, s.was.token = r.Token != s.target.token, r.Token
			if err := s.checkBase(r.Base, o); err != nil {
				return false, err
			}
		}
		s.length += int64(len(line))
		s.apply(r)
	}
}

// damaged returns the Failure for a file that is not a state, or is damaged. Overwriting it could
// destroy another program's file.
func (s *state) damaged(number int) error {
	return &Failure{fmt.Errorf("line %d of %s was not written by a sync", number, plaintext.Line(s.path, 300)), "name another file with --state, or remove this one: then all documents are sent again"}
}

// otherServer returns the Failure for a state of another server, or marks it to be overwritten.
func (s *state) otherServer(r record, o stateOptions) error {
	if o.startOver {
		s.stale = true
		return nil
	}
	return &Failure{fmt.Errorf("the state %s is for %s, not for %s", plaintext.Line(s.path, 300), plaintext.Line(r.To, 300), plaintext.Line(s.target.to, 300)), otherTargetHint}
}

const otherTargetHint = "give each target a --state of its own; or --all sends all documents there and replaces this state"

// isConfirmed reports whether the state's workspace is known without asking the server.
func (s *state) isConfirmed() bool { return s.confirmed }

// confirm binds the state to the workspace that the server, which accepts the token, reports; empty
// if it reports none. A state of another workspace is an error, unless startOver is set.
func (s *state) confirm(workspace string, startOver bool) error {
	s.confirmed = true
	switch {
	case !s.bound:
		s.target.workspace = workspace
		return nil // the first batch writes the file
	case workspace != "" && workspace == s.workspace:
		s.otherToken = false
		if s.stale {
			return nil // as above
		}
		if err := s.rewrite(); err != nil {
			return s.unwritable(err)
		}
		return s.reopen(true)
	case startOver:
		s.otherToken, s.stale, s.known, s.target.workspace = false, true, map[string]digest{}, workspace
		return nil
	case workspace == "" || s.workspace == "":
		return &Failure{
			fmt.Errorf("the state %s was made with token %s, not with token %s, and the server does not report whether both are for the same workspace", plaintext.Line(s.path, 300), plaintext.Line(s.was.token, 80), plaintext.Line(s.target.token, 80)),
			otherTargetHint,
		}
	}
	return &Failure{
		fmt.Errorf("the state %s is for the workspace %s of %s, and the token is for the workspace %s", plaintext.Line(s.path, 300), plaintext.Line(s.workspace, 80), plaintext.Line(s.target.to, 300), plaintext.Line(workspace, 80)),
		otherTargetHint,
	}
}

// checkBase compares the base with that of the last run.
func (s *state) checkBase(was string, o stateOptions) error {
	s.was.base, s.stale = was, s.target.base != was && s.target.base != ""
	if was == "" || !s.stale || o.newBase {
		return nil
	}
	return &Failure{
		fmt.Errorf("links of documents have begun with %s so far, and would begin with %s", plaintext.Line(was, 300), plaintext.Line(s.target.base, 300)),
		fmt.Sprintf("give --base-url %s as before; or another one, and all documents with such links are sent again", plaintext.Line(was, 300)),
	}
}

func parse(line []byte) (r record, err error) {
	if err := json.Unmarshal(line, &r); err != nil {
		return r, err
	}
	for id, hash := range r.Stored {
		if b, err := hex.DecodeString(hash); err != nil || len(b) != len(digest{}) {
			return r, fmt.Errorf("%q is not a hash of %q", hash, id)
		}
	}
	return r, nil
}

func (s *state) apply(r record) {
	for id, hash := range r.Stored {
		b, _ := hex.DecodeString(hash) // parse has checked it
		s.known[id] = digest(b)
	}
	for _, id := range r.Deleted {
		delete(s.known, id)
	}
	s.entries += len(r.Stored) + len(r.Deleted)
}

// stored records an acknowledged batch. It returns when the record is on disk.
func (s *state) stored(b *batch) error {
	r := record{Stored: map[string]string{}}
	for i, id := range b.ids {
		r.Stored[id] = hex.EncodeToString(b.digests[i][:])
	}
	return s.append(r)
}

// deleted records an acknowledged batch of deletions. It returns when the record is on disk.
func (s *state) deleted(b *batch) error { return s.append(record{Deleted: b.ids}) }

func (s *state) append(r record) error {
	if s.broken {
		return &Failure{fmt.Errorf("write the state %s: an earlier line could not be written whole", plaintext.Line(s.path, 300)), "run the same command again"}
	}
	if s.stale {
		if err := s.rewrite(); err != nil {
			return s.unwritable(err)
		}
		if err := s.reopen(true); err != nil {
			return err
		}
		s.stale = false
	}
	line := append(encode(r), '\n')
	_, err := s.file.Write(line)
	if err == nil {
		err = s.file.Sync()
	}
	if err != nil {
		// if an incomplete line remains, it is dropped at the next start
		s.broken = s.file.Truncate(s.length) != nil
		return &Failure{fmt.Errorf("write the state %s: %w", plaintext.Line(s.path, 300), bare(err)),
			"make room, and run the same command again: documents that the state does not record are sent again, which changes nothing"}
	}
	s.length += int64(len(line))
	s.apply(r)
	return nil
}

// rewrite replaces the file by one that holds only the current entries.
func (s *state) rewrite() (err error) {
	file, err := os.CreateTemp(filepath.Dir(s.path), "."+filepath.Base(s.path)+".new-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = file.Close()
			_ = os.Remove(file.Name())
		}
	}()
	w := bufio.NewWriter(file)
	put := func(r record) {
		line := append(encode(r), '\n')
		s.length += int64(len(line))
		_, _ = w.Write(line) // Flush returns the first error
	}
	s.length = 0
	put(record{Format: format, To: s.target.to, Workspace: s.target.workspace, Token: s.target.token, Base: s.target.base})
	ids := make([]string, 0, len(s.known))
	for id := range s.known {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for some := range slices.Chunk(ids, maxItems) {
		r := record{Stored: map[string]string{}}
		for _, id := range some {
			known := s.known[id]
			r.Stored[id] = hex.EncodeToString(known[:])
		}
		put(r)
	}
	if err := errors.Join(w.Flush(), file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Rename(file.Name(), s.path); err != nil {
		return err
	}
	s.entries = len(s.known)
	if dir, err := os.Open(filepath.Dir(s.path)); err == nil {
		// if the system cannot sync a folder, the rename is as durable as it makes it
		_ = dir.Sync()
		_ = dir.Close()
	}
	return nil
}

func (s *state) close() error {
	var err error
	if s.file != nil {
		err = s.file.Close()
	}
	if s.lock != nil {
		err = errors.Join(err, s.lock.Unlock())
	}
	return err
}

// bare returns a file error without the path, which the message has already.
func bare(err error) error {
	var e *fs.PathError
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}
