package identity

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A TokenFile is a store of Keys that another program makes (--token-file). It is a text file with
// one token a line:
//
//	ID SHA256 [workspace=NAME] [plan=NAME] [expires=TIME]
//
// ID is the public name that the token is counted by (CheckTokenID), SHA256 the hash of the whole
// token in hex (HashKey), and TIME when it is refused (ParseExpires). Words are separated by
// blanks. Empty lines, lines that begin with # and a byte order mark before the first line are
// skipped. Two lines with one id, or with one hash, are an error, and so is an id that is the key
// itself. The file is read again when it has changed, and a token that is no longer in it is
// revoked. Replace the file by renaming another over it: a file that is written in place may be
// read half-written. A TokenFile is safe for concurrent use.
type TokenFile struct {
	path   string
	report TokenFileOptions
	now    func() time.Time
	tokens atomic.Pointer[tokenTable] // of the last good version
	failed atomic.Bool                // the last attempt to read the file failed

	// checked is when a check began after which tokens were in force, in Unix nanoseconds.
	checked atomic.Int64

	mu       sync.Mutex  // held while the file is checked and read; guards what follows
	looked   time.Time   // when the file was last checked for a change
	seen     os.FileInfo // the version last read, good or bad; nil if it could not be read
	fresh    bool        // seen was so new that a later version may have the same time
	bad      error       // what was wrong with seen, or nil
	reported string      // the error last reported, or ""
}

const (
	maxTokenFile = 256 << 20
	fileLook     = 250 * time.Millisecond // the time between two checks
	settled      = 2 * time.Second        // two versions within this may have the same time
)

var _ Keys = (*TokenFile)(nil)

// TokenFileOptions are what a TokenFile reports to; the zero value reports nothing. The functions
// are called by whoever looks a token up, perhaps by several at once, and may use the TokenFile.
type TokenFileOptions struct {
	// Failed is called with the reason why a changed file is not in force, once for each reason.
	// The error contains nothing of the file's lines, and wraps a *TokenFileError if they are why.
	Failed func(error)
	// Changed is called when a changed file has come into force, if its tokens are others, or if
	// Failed was called before. It is not called for the file as it was opened.
	Changed func(TokenFileChange)
}

// A TokenFileChange is how the tokens in force have changed.
type TokenFileChange struct {
	Tokens, Was int // in force, now and before
	// by their ids; Changed have another hash, workspace, plan or expiry
	Added, Removed, Changed int
	ValidAgain              bool // what Failed was called with is over
}

// OpenTokenFile reads the file. If a later version of it cannot be read, the last good one stays in
// force.
func OpenTokenFile(path string, o TokenFileOptions) (*TokenFile, error) {
	if o.Failed == nil {
		o.Failed = func(error) {}
	}
	if o.Changed == nil {
		o.Changed = func(TokenFileChange) {}
	}
	f := &TokenFile{path: path, report: o, now: time.Now}
	f.looked = f.now()
	f.checked.Store(f.looked.UnixNano())
	if err := f.refresh(); err != nil {
		return nil, err
	}
	return f, nil
}

// ReadTokens reads the lines of a token file from r, such as one that is made at the moment. An
// error about the lines is a *TokenFileError.
func ReadTokens(r io.Reader) ([]StoredToken, error) {
	source := &limitedFile{from: r, name: "the input", left: maxTokenFile}
	t, err := readTokenTable(source, 0)
	if source.failed != nil {
		return nil, fmt.Errorf("read tokens: %w", source.failed)
	}
	if err != nil {
		return nil, err
	}
	return t.tokens, nil
}

// Len returns how many tokens are in force. It does not check the file.
func (f *TokenFile) Len() int { return f.tokens.Load().len() }

// All returns the tokens in force, in the order of their lines. It does not check the file.
func (f *TokenFile) All() iter.Seq[StoredToken] { return slices.Values(f.tokens.Load().tokens) }

// Valid reports whether the last attempt to read the file succeeded. If it is false, the tokens of
// an earlier version are in force.
func (f *TokenFile) Valid() bool { return !f.failed.Load() }

// Watch checks the file once a second until ctx ends, so that a change is in force and reported
// also if no request comes.
func (f *TokenFile) Watch(ctx context.Context) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			f.current()
		}
	}
}

// Lookup implements Tokens.
func (f *TokenFile) Lookup(id string) (StoredToken, error) {
	t := f.current()
	i, ok := t.byID[id]
	if !ok {
		return StoredToken{}, ErrUnknownToken
	}
	return t.tokens[i], nil
}

// LookupHash implements Keys.
func (f *TokenFile) LookupHash(hash TokenHash) (StoredToken, error) {
	t := f.current()
	i, ok := t.byHash[hash]
	if !ok {
		return StoredToken{}, ErrUnknownToken
	}
	return t.tokens[i], nil
}

// A file with manyTokens takes so long to read that callers get the last version meanwhile, if that
// was in force at most readPatience ago. With fewer tokens they wait, for about 1 ms a thousand.
const (
	manyTokens   = 20_000
	readPatience = 3 * time.Second
)

// current returns the tokens in force. It checks the file if fileLook has passed.
func (f *TokenFile) current() *tokenTable {
	last := f.tokens.Load()
	age := f.now().Sub(time.Unix(0, f.checked.Load()))
	mayWait := last.len() < manyTokens || age < 0 || age > readPatience
	if mayWait {
		f.mu.Lock()
	} else if !f.mu.TryLock() {
		return last
	}
	now := f.now() // it may have waited
	switch {
	case now.Sub(f.looked) < fileLook && !now.Before(f.looked):
		f.mu.Unlock()
	case mayWait:
		f.look(now)
	default:
		go f.look(now) // it ends when the file is read
		return last
	}
	return f.tokens.Load()
}

// look checks the file, and reports what has not been reported yet. It unlocks f.mu.
func (f *TokenFile) look(now time.Time) {
	f.looked = now
	before := f.tokens.Load()
	trouble, over := f.trouble()
	after := f.tokens.Load()
	f.checked.Store(now.UnixNano())
	f.mu.Unlock() // the functions that are reported to may take their time
	if trouble != nil {
		f.report.Failed(trouble)
	} else if over || before != after {
		change := before.compare(after)
		if change.ValidAgain = over; over || change.Added+change.Removed+change.Changed > 0 {
			f.report.Changed(change)
		}
	}
}

// trouble reads the file if it has changed. It returns an error that has not been reported yet, and
// whether the one that was reported is over.
func (f *TokenFile) trouble() (err error, over bool) {
	err = f.refresh()
	f.failed.Store(err != nil)
	if err == nil {
		over, f.reported = f.reported != "", ""
		return nil, over
	}
	if err.Error() == f.reported {
		return nil, false
	}
	f.reported = err.Error()
	return fmt.Errorf("%w; the last good version stays in force", err), false
}

// refresh reads the file if it has changed since the last read. A bad version is not read twice:
// refresh returns its error again. A file that could not be opened or read is tried again.
func (f *TokenFile) refresh() error {
	info, err := os.Stat(f.path)
	if err != nil {
		f.seen = nil
		return fmt.Errorf("read tokens: %w", err)
	}
	if f.seen != nil && !f.fresh && os.SameFile(f.seen, info) && info.Size() == f.seen.Size() && info.ModTime().Equal(f.seen.ModTime()) {
		return f.bad
	}
	f.seen = nil
	file, info, err := openTokens(f.path)
	if err != nil {
		return err
	}
	defer file.Close()
	source := &limitedFile{from: file, name: f.path, left: maxTokenFile}
	tokens, err := readTokenTable(source, info.Size())
	if source.failed != nil { // its lines may be fine
		return fmt.Errorf("read tokens: %w", source.failed)
	}
	age := f.looked.Sub(info.ModTime())
	f.seen, f.fresh = info, -settled < age && age < settled
	if err != nil {
		f.bad = fmt.Errorf("read tokens: %s:%w", f.path, err)
		return f.bad
	}
	f.tokens.Store(tokens)
	f.bad = nil
	return nil
}

// openTokens opens the file, and describes it as it was before anything was read, so that a later
// write shows as a change.
func openTokens(path string) (*os.File, os.FileInfo, error) {
	// O_NONBLOCK: opening a pipe must not block.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("read tokens: %w", err)
	}
	info, err := file.Stat()
	switch {
	case err != nil:
		err = fmt.Errorf("read tokens: %w", err)
	case !info.Mode().IsRegular():
		err = fmt.Errorf("read tokens: %s is not a regular file, so it cannot be read again when it changes", path)
	case info.Size() > maxTokenFile:
		err = fmt.Errorf("read tokens: %s has %d bytes: at most %d are read", path, info.Size(), maxTokenFile)
	}
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return file, info, nil
}

// A limitedFile is a file of which at most left bytes are read. failed is why it could not be read.
type limitedFile struct {
	from   io.Reader
	name   string // for errors
	left   int64
	failed error
}

func (f *limitedFile) Read(p []byte) (int, error) {
	n, err := f.from.Read(p)
	if f.left -= int64(n); f.left < 0 {
		n, err = 0, fmt.Errorf("%s has more than %d bytes", f.name, maxTokenFile)
	}
	if err != nil && err != io.EOF {
		f.failed = err
	}
	return n, err
}
