package identity

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A TokenFile is a store of Tokens that another program makes (--token-file). It is a text file
// with one token a line: its id, the SHA-256 of the whole token in hex, and optionally its
// workspace, separated by blanks. Empty lines and lines that begin with # are skipped. The file is
// read again when it has changed, and a token that is no longer in it is revoked. Replace the file
// by renaming another over it: a file that is written in place may be read half-written. A
// TokenFile is safe for concurrent use.
type TokenFile struct {
	path     string
	report   func(error)
	mu       sync.Mutex
	tokens   map[string]StoredToken // of the last good version
	now      func() time.Time
	looked   time.Time   // when the file was last checked for a change
	seen     os.FileInfo // the version last read, good or bad; nil if it could not be read
	fresh    bool        // seen was so new that a later version may have the same time
	bad      error       // what was wrong with seen, or nil
	reported string      // the error last reported, or ""
}

const (
	maxTokenFile = 64 << 20
	fileLook     = 250 * time.Millisecond // the time between two checks
	settled      = 2 * time.Second        // two versions within this may have the same time
)

// OpenTokenFile reads the file. If a later version of it cannot be read, the last good one stays in
// force and report is called with the error. report may be nil.
func OpenTokenFile(path string, report func(error)) (*TokenFile, error) {
	if report == nil {
		report = func(error) {}
	}
	f := &TokenFile{path: path, report: report, now: time.Now}
	f.looked = f.now()
	if err := f.refresh(); err != nil {
		return nil, err
	}
	return f, nil
}

// Len returns how many tokens the file holds.
func (f *TokenFile) Len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.tokens)
}

// Lookup implements Tokens.
func (f *TokenFile) Lookup(id string) (StoredToken, error) {
	t, ok, trouble := f.find(id)
	if trouble != nil {
		f.report(trouble) // outside the lock: it may ask for Len
	}
	if !ok {
		return StoredToken{}, ErrUnknownToken
	}
	return t, nil
}

// find checks the file if fileLook has passed. trouble is an error that has not been reported yet.
func (f *TokenFile) find(id string) (t StoredToken, ok bool, trouble error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := f.now(); now.Sub(f.looked) >= fileLook || now.Before(f.looked) {
		f.looked = now
		err := f.refresh()
		if err == nil {
			f.reported = ""
		} else if err.Error() != f.reported {
			f.reported = err.Error()
			trouble = fmt.Errorf("%w; the last good version stays in force", err)
		}
	}
	t, ok = f.tokens[id]
	return t, ok, trouble
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
	b, info, err := readTokens(f.path)
	if err != nil {
		return err
	}
	age := f.looked.Sub(info.ModTime())
	f.seen, f.fresh = info, -settled < age && age < settled
	tokens, err := parseTokens(b)
	if err != nil {
		f.bad = fmt.Errorf("read tokens: %s:%w", f.path, err)
		return f.bad
	}
	f.tokens, f.bad = tokens, nil
	return nil
}

func readTokens(path string) ([]byte, os.FileInfo, error) {
	// O_NONBLOCK: opening a pipe must not block.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("read tokens: %w", err)
	}
	defer file.Close()
	info, err := file.Stat() // before reading, so that a later write shows as a change
	if err != nil {
		return nil, nil, fmt.Errorf("read tokens: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("read tokens: %s is not a regular file, so it cannot be read again when it changes", path)
	}
	if info.Size() > maxTokenFile {
		return nil, nil, fmt.Errorf("read tokens: %s has %d bytes: at most %d are read", path, info.Size(), maxTokenFile)
	}
	b, err := io.ReadAll(io.LimitReader(file, maxTokenFile+1))
	if err != nil {
		return nil, nil, fmt.Errorf("read tokens: %w", err)
	}
	if len(b) > maxTokenFile {
		return nil, nil, fmt.Errorf("read tokens: %s grows beyond %d bytes", path, maxTokenFile)
	}
	return b, info, nil
}

func parseTokens(b []byte) (map[string]StoredToken, error) {
	tokens := make(map[string]StoredToken)
	lines, n := bufio.NewScanner(bytes.NewReader(b)), 1
	for ; lines.Scan(); n++ {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		t, err := parseStored(fields)
		if err != nil {
			return nil, fmt.Errorf("%d: %w", n, err)
		}
		if _, twice := tokens[t.ID]; twice {
			return nil, fmt.Errorf("%d: id %q occurs twice", n, t.ID)
		}
		tokens[t.ID] = t
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%d: %w", n, err)
	}
	return tokens, nil
}

func parseStored(fields []string) (StoredToken, error) {
	const form = "a line is: id, SHA-256 of the token in hex, workspace (optional)"
	if len(fields) < 2 || len(fields) > 3 {
		return StoredToken{}, fmt.Errorf("%d words: %s", len(fields), form)
	}
	t := StoredToken{ID: fields[0]}
	if len(t.ID) != tokenIDLen || !isLowerBase32(t.ID) {
		return StoredToken{}, fmt.Errorf("id %.10q of %d characters: %d of a–z and 2–7 are needed: the part between wpt_ and the next _",
			t.ID, len(t.ID), tokenIDLen) // no more of it: it may be a whole token
	}
	if n, err := hex.Decode(t.Hash[:], []byte(fields[1][:min(len(fields[1]), 64)])); err != nil || n != len(t.Hash) || len(fields[1]) != 64 {
		return StoredToken{}, fmt.Errorf("the hash of %s has %d characters or is not hex: 64 hex digits are needed", t.ID, len(fields[1]))
	}
	if len(fields) == 3 {
		t.Workspace = fields[2]
	}
	return t, nil
}
