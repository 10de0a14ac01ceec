package admin

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/weirlimit/weir"

	"github.com/gofrs/flock"

	"github.com/weirlimit/weir/internal/live"
	"github.com/weirlimit/weir/internal/owned"
)

const (
	auditFile = "audit.log" // a line of JSON for each change
	auditKey  = "audit.key" // the key of the hashes of callers
)

// An Audit is the log of operators' changes, in a data directory. Several processes may append to
// it. It contains no addresses, sessions or agents of callers, but keyed hashes of them, whose key
// is kept in the directory. An Audit is safe for concurrent use.
type Audit struct {
	path string
	key  []byte
	now  func() time.Time
}

// ErrAuditKey is wrapped by the error of OpenAudit for a file of a key that has none.
var ErrAuditKey = errors.New("restore the file, or remove it")

// OpenAudit returns the audit log of a data directory, which must exist. now is the clock; nil
// means time.Now.
func OpenAudit(ctx context.Context, dir string, now func() time.Time) (*Audit, error) {
	if now == nil {
		now = time.Now
	}
	a := &Audit{path: filepath.Join(dir, auditFile), now: now}
	err := a.withLock(ctx, func() (err error) {
		path := filepath.Join(dir, auditKey)
		if a.key, err = readFile(path, maxTokenFile); errors.Is(err, fs.ErrNotExist) {
			a.key = make([]byte, sha256.Size)
			rand.Read(a.key) // never fails
			err = owned.Replace(path, a.key)
		}
		if err == nil && len(a.key) != sha256.Size {
			err = fmt.Errorf("%s has %d bytes, and a key has %d: %w", path, len(a.key), sha256.Size, ErrAuditKey)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open the audit log: %w", err)
	}
	return a, nil
}

// An Entry is one change. It is written before the change is made.
type Entry struct {
	Time string `json:"time"`

	// Who is "token NAME", "command line", "start" (of a server), "SIGHUP" or "watch" (of the
	// policy's file).
	Who string `json:"who"`
	// What is "reset", "grant", "policy", "admin token created" or "admin token revoked". If a
	// change fails after its entry, a second entry adds " failed".
	What string `json:"what"`

	Limiter string  `json:"limiter,omitempty"`
	Caller  *Hashed `json:"caller,omitempty"`
	Before  any     `json:"before,omitempty"`
	After   any     `json:"after,omitempty"`
	Why     string  `json:"why,omitempty"` // the operator's reason; see CheckWhy
}

// MaxWhy is the max length of a reason in bytes.
const MaxWhy = 1000

// CheckWhy returns an error if an operator's reason for a change is too long for the audit log, or
// is not text. It may be empty, and may hold any character.
func CheckWhy(why string) error {
	if len(why) > MaxWhy {
		return fmt.Errorf("the reason has %d bytes: at most %d are allowed", len(why), MaxWhy)
	}
	if !utf8.ValidString(why) {
		return fmt.Errorf("the reason is not UTF-8: %.40q", why)
	}
	return nil
}

// A Hashed is a caller as it is logged.
type Hashed struct {
	Kinds string `json:"kinds"` // the key sources that it was named by, such as "ip+agent"
	Hash  string `json:"hash"`
	Token string `json:"token,omitempty"` // the public id of its token, if it was named by that
}

// ErrAudit is the error of a change that was refused because it could not be logged.
var ErrAudit = errors.New("the audit log cannot be written, so nothing was changed")

// Append writes an entry and returns when it is on the disk. The error wraps ErrAudit.
func (a *Audit) Append(ctx context.Context, e Entry) error {
	e.Time = a.now().UTC().Format(time.RFC3339Nano)
	line, err := json.Marshal(e)
	if err == nil {
		err = a.withLock(ctx, func() error { return appendLine(a.path, append(printable(line), '\n')) })
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrAudit, err)
	}
	return nil
}

// printable returns JSON with every character escaped that is not printable. Such a character
// could move the cursor of a terminal or reverse the direction of writing. encoding/json escapes
// only some of them.
func printable(text []byte) []byte {
	out := make([]byte, 0, len(text)+1)
	for _, r := range string(text) { // outside strings, JSON from encoding/json is ASCII
		switch {
		case unicode.IsPrint(r):
			out = utf8.AppendRune(out, r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out
}

// Size returns the size of the log in bytes, which grows with each change; 0 if there is no log or
// it cannot be read.
func (a *Audit) Size() int64 {
	info, err := os.Stat(a.path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// PolicyChange logs a change of the policy in force; for live.Options.Before.
func (a *Audit) PolicyChange(c live.Change) error {
	return a.Append(context.Background(), Entry{Who: c.By, What: "policy", Why: c.Why, Before: map[string]string{"version": c.Was},
		After: map[string]string{"version": c.Version, "source": c.Source, "path": c.Path}})
}

// withLock calls do while it holds a lock against other processes.
func (a *Audit) withLock(ctx context.Context, do func() error) error {
	lock := flock.New(a.path+".lock", flock.SetPermissions(0o600))
	if err := owned.Make(lock.Path()); err != nil {
		return fmt.Errorf("lock %s: %w", lock.Path(), err)
	}
	waiting, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	if ok, err := lock.TryLockContext(waiting, 5*time.Millisecond); !ok {
		return fmt.Errorf("lock %s: %w", lock.Path(), err)
	}
	defer lock.Close()
	return do()
}

// appendLine appends a line, or leaves the file unchanged if that fails. If a power cut left the
// last line incomplete, the new one begins after a line break.
func appendLine(path string, line []byte) error {
	f, err := owned.Open(path, os.O_APPEND)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", path)
	}
	size := info.Size()
	if size > 0 {
		var last [1]byte
		if _, err := f.ReadAt(last[:], size-1); err != nil {
			return err
		}
		if last[0] != '\n' {
			line = append([]byte{'\n'}, line...)
		}
	}
	if _, err := f.Write(line); err != nil {
		// no other process appends, since the lock is held
		return errors.Join(err, f.Truncate(size))
	}
	return f.Sync()
}

// maxAuditRead is how many bytes at the end of the log are read.
const maxAuditRead = 4 << 20

// Last returns the last n entries, oldest first. It leaves out lines that are not JSON.
func (a *Audit) Last(n int) ([]json.RawMessage, error) {
	out := []json.RawMessage{}
	info, err := os.Stat(a.path) // before opening, which could block on a pipe
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", a.path)
	}
	if err != nil {
		return nil, fmt.Errorf("read the audit log: %w", err)
	}
	f, err := os.Open(a.path)
	if err != nil {
		return nil, fmt.Errorf("read the audit log: %w", err)
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, fmt.Errorf("read the audit log: %w", err)
	}
	from := max(info.Size()-maxAuditRead, 0)
	b, err := io.ReadAll(io.NewSectionReader(f, from, info.Size()-from))
	if err != nil {
		return nil, fmt.Errorf("read the audit log: %w", err)
	}
	lines := bytes.Split(b, []byte("\n"))
	if from > 0 {
		lines = lines[1:] // the first line may be cut
	}
	for _, line := range lines {
		if len(line) > 0 && json.Valid(line) {
			out = append(out, json.RawMessage(line))
		}
	}
	return out[max(len(out)-n, 0):], nil
}

// hash returns the caller as it is logged.
func (a *Audit) hash(n *named) *Hashed {
	mac := hmac.New(sha256.New, a.key)
	h := &Hashed{Kinds: n.kinds()}
	for _, source := range n.sources {
		for _, keys := range n.callers {
			value, _ := keys.AppendKey(nil, source)
			fmt.Fprintf(mac, "%s %d %s\n", source, len(value), value)
		}
		if weir.SourceOf(source).Public {
			value, _ := n.callers[0].AppendKey(nil, source)
			h.Token = string(value)
		}
	}
	h.Hash = hex.EncodeToString(mac.Sum(nil)[:8])
	return h
}
