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

// A target is whose state it is: a workspace of a server, the id of the token that was last used
// for it, and what links there are made from.
type target struct{ to, workspace, token, base string }

// A record is one line of the state file. The first says whose it is; each of the others is an acknowledged batch.
type record struct {
	Format    int               `json:"weir_sync,omitempty"` // 1
	To        string            `json:"to,omitempty"`
	Workspace string            `json:"workspace,omitempty"` // as the server says; empty: it does not
	Token     string            `json:"token,omitempty"`     // its id
	Base      string            `json:"base,omitempty"`
	Stored    map[string]string `json:"stored,omitempty"`
	Deleted   []string          `json:"deleted,omitempty"`
}

const (
	format     = 1
	mostLine   = 2 << 20 // bytes of a record: 500 ids, every character of them escaped, fit
	mostSpared = 2000    // entries that are no longer true, before the file is written anew for them
)

// state is what was acknowledged, in memory and as a journal: a batch is one line, written and synced at once. What kill -9
// or a full disk leaves of a line is dropped when it is next opened, so at worst the last batch is sent again, which changes
// nothing on the server.
type state struct {
	path    string
	target  target
	lock    *flock.Flock // nil where it is only read
	file    *os.File     // likewise
	length  int64        // of the lines that are whole
	entries int          // in the file, those that are no longer true too
	was     target       // whose the file says it is, but for the server
	stale   bool         // there is no file, or its first line is another target's: it is written anew when the first batch is acknowledged
	broken  bool         // the end of the file is half a line that could not be taken away
	known   map[string]digest

	bound      bool   // the file says whose it is
	workspace  string // that it says; empty: none
	otherToken bool   // it says another token
	settled    bool   // nothing is to be asked of the server any more
}

// terms are how a state is opened.
type terms struct {
	anew     bool // another target's state is begun anew
	rebase   bool // another base is meant
	readOnly bool // nothing is locked or written
}

func openState(path string, t target, how terms) (*state, error) {
	path, err := followed(path)
	if err != nil {
		return nil, err
	}
	s := &state{path: path, target: t, known: map[string]digest{}}
	if !how.readOnly {
		if err := s.look(); err != nil { // before there is a lock beside what may be no state at all
			return nil, err
		}
		if err := s.takeLock(); err != nil {
			return nil, err
		}
		s.sweep()
	}
	if err := s.open(how); err != nil {
		_ = s.close() // the reason is told already
		return nil, err
	}
	return s, nil
}

// followed returns where a symbolic link leads to: the file there is locked and replaced, and the link stays.
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
	return &Failure{fmt.Errorf("read the state %s: %w", plaintext.Line(path, 300), bare(err)), "say with --state FILE where it is kept"}
}

// look refuses a file whose first line is no state's.
func (s *state) look() error {
	file, err := s.reading()
	if file == nil {
		return err
	}
	defer file.Close()
	line, err := bufio.NewReaderSize(file, mostLine).ReadSlice('\n')
	if err == io.EOF && len(line) == 0 {
		return nil
	}
	if r, bad := parse(line); err != nil || bad != nil || r.Format != format {
		return s.damaged(1)
	}
	return nil
}

// sweep removes what a rewrite has left that was killed. The lock is held, so none is under way.
func (s *state) sweep() {
	files, _ := os.ReadDir(filepath.Dir(s.path)) // what cannot be listed stays
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

func (s *state) open(how terms) error {
	whole, err := s.read(how)
	if err != nil || how.readOnly {
		return err
	}
	s.settled = s.bound && !s.otherToken
	if s.length == 0 {
		s.stale = true // a file is bound to whom the server has accepted
	}
	if s.stale || s.otherToken {
		return nil
	}
	if s.entries > 2*len(s.known)+mostSpared {
		if err := s.rewrite(); err != nil {
			return s.unwritable(err)
		}
		whole = true
	}
	return s.reopen(whole)
}

// reopen opens the file to append to it, without what is no whole line.
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
	return &Failure{fmt.Errorf("write the state %s: %w", plaintext.Line(s.path, 300), bare(err)), "say with --state FILE where it can be kept"}
}

// reading opens the file; nil where there is none.
func (s *state) reading() (*os.File, error) {
	info, err := os.Stat(s.path) // before it is opened, which waits for a writer where it is a pipe
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err == nil && !info.Mode().IsRegular():
		return nil, &Failure{fmt.Errorf("the state %s is not a regular file", plaintext.Line(s.path, 300)), "say with --state FILE where it is kept"}
	}
	file, err := os.Open(s.path)
	if err != nil {
		return nil, unreadable(s.path, err)
	}
	return file, nil
}

// read reads what is known, and whether the last line is whole. A state of another target is an error, or begun anew.
func (s *state) read(how terms) (whole bool, err error) {
	file, err := s.reading()
	if file == nil {
		return true, err
	}
	defer file.Close()
	lines := bufio.NewReaderSize(file, mostLine)
	for number := 1; ; number++ {
		line, err := lines.ReadSlice('\n')
		switch {
		case err == io.EOF && len(line) == 0:
			return true, nil
		case err == io.EOF && number > 1:
			return false, nil // half a line
		case err != nil:
			return false, s.damaged(number)
		}
		r, bad := parse(line)
		if _, more := lines.Peek(1); bad != nil && more != nil && number > 1 {
			return false, nil // the last line: a disk without power may keep its end and lose its middle
		}
		switch {
		case bad != nil || number == 1 && r.Format != format:
			return false, s.damaged(number)
		case number == 1 && r.To != s.target.to:
			return true, s.foreign(r, how)
		case number == 1:
			s.bound, s.workspace, s.target.workspace = true, r.Workspace, r.Workspace
			s.otherToken, s.was.token = r.Token != s.target.token, r.Token
			if err := s.rebased(r.Base, how); err != nil {
				return false, err
			}
		}
		s.length += int64(len(line))
		s.apply(r)
	}
}

// damaged is told of a file that is no state, or half of one. To begin it anew would overwrite what may be somebody's.
func (s *state) damaged(number int) error {
	return &Failure{fmt.Errorf("line %d of %s is not what a sync writes", number, plaintext.Line(s.path, 300)), "name another file with --state, or remove this one: then all documents are sent again"}
}

// foreign is told of another server's state.
func (s *state) foreign(r record, how terms) error {
	if how.anew {
		s.stale = true
		return nil
	}
	return &Failure{fmt.Errorf("the state %s is about %s, not about %s", plaintext.Line(s.path, 300), plaintext.Line(r.To, 300), plaintext.Line(s.target.to, 300)), foreignHint}
}

const foreignHint = "give each target a --state of its own; or --all sends everything there and begins this one anew"

// isSettled reports whether nothing has to be asked of the server to know whose the state is.
func (s *state) isSettled() bool { return s.settled }

// settle binds the state to the workspace that the server, which accepts the token, says it is for;
// empty: it does not say. A state of another workspace is an error, or begun anew.
func (s *state) settle(workspace string, anew bool) error {
	s.settled = true
	switch {
	case !s.bound:
		s.target.workspace = workspace
		return nil // the first batch writes it
	case workspace != "" && workspace == s.workspace:
		s.otherToken = false
		if s.stale {
			return nil // likewise
		}
		if err := s.rewrite(); err != nil {
			return s.unwritable(err)
		}
		return s.reopen(true)
	case anew:
		s.otherToken, s.stale, s.known, s.target.workspace = false, true, map[string]digest{}, workspace
		return nil
	case workspace == "" || s.workspace == "":
		return &Failure{
			fmt.Errorf("the state %s was made with token %s, not with token %s, and the server does not tell whether they are of one workspace", plaintext.Line(s.path, 300), plaintext.Line(s.was.token, 80), plaintext.Line(s.target.token, 80)),
			foreignHint,
		}
	}
	return &Failure{
		fmt.Errorf("the state %s is about the workspace %s of %s, and the token is for the workspace %s", plaintext.Line(s.path, 300), plaintext.Line(s.workspace, 80), plaintext.Line(s.target.to, 300), plaintext.Line(workspace, 80)),
		foreignHint,
	}
}

// rebased is told what links began with the last time.
func (s *state) rebased(was string, how terms) error {
	s.was.base, s.stale = was, s.target.base != was && s.target.base != ""
	if was == "" || !s.stale || how.rebase {
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
			return r, fmt.Errorf("%q is no hash of %q", hash, id)
		}
	}
	return r, nil
}

func (s *state) apply(r record) {
	for id, hash := range r.Stored {
		b, _ := hex.DecodeString(hash) // parsed already
		s.known[id] = digest(b)
	}
	for _, id := range r.Deleted {
		delete(s.known, id)
	}
	s.entries += len(r.Stored) + len(r.Deleted)
}

// stored remembers an acknowledged batch, once it is on the disk.
func (s *state) stored(b *batch) error {
	r := record{Stored: map[string]string{}}
	for i, id := range b.ids {
		r.Stored[id] = hex.EncodeToString(b.digests[i][:])
	}
	return s.append(r)
}

// deleted forgets an acknowledged batch, once that is on the disk.
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
		s.broken = s.file.Truncate(s.length) != nil // half a line may be there; if it stays as the last it is dropped the next time
		return &Failure{fmt.Errorf("write the state %s: %w", plaintext.Line(s.path, 300), bare(err)),
			"make room, and run the same command again: what the state could not remember is sent again, which changes nothing"}
	}
	s.length += int64(len(line))
	s.apply(r)
	return nil
}

// rewrite replaces the file by one that holds what is known, and nothing else.
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
		_ = dir.Sync() // where a folder cannot be synced, the name is as safe as that system makes it
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

// bare is a file error without the path, which is told beside it.
func bare(err error) error {
	var e *fs.PathError
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}
