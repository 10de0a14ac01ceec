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

	"github.com/gofrs/flock"

	"github.com/weirlimit/weir/internal/live"
)

const (
	auditFile = "audit.log" // a line of JSON for each change
	auditKey  = "audit.key" // keys the hashes of callers in it
)

// An Audit is the log of what operators change, in a data directory. Several processes may append to it. It names no caller: an
// address, a session or an agent is a keyed hash, which is the same for as long as the directory lives. It is safe for concurrent use.
type Audit struct {
	path string
	key  []byte
	now  func() time.Time
}

// OpenAudit returns the audit log of a data directory, which must be there. now is the clock; nil means time.Now.
func OpenAudit(ctx context.Context, dir string, now func() time.Time) (*Audit, error) {
	if now == nil {
		now = time.Now
	}
	a := &Audit{path: filepath.Join(dir, auditFile), now: now}
	err := a.alone(ctx, func() (err error) {
		path := filepath.Join(dir, auditKey)
		if a.key, err = readWhole(path, mostToken); errors.Is(err, fs.ErrNotExist) {
			a.key = make([]byte, sha256.Size)
			rand.Read(a.key) // never fails
			err = replace(path, a.key)
		}
		if err == nil && len(a.key) != sha256.Size {
			err = fmt.Errorf("%s has %d bytes, and a key has %d: put the right file back, or remove this one", path, len(a.key), sha256.Size)
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
	Time    string  `json:"time"`
	Who     string  `json:"who"`  // "token NAME", "command line", "start" (of a server), "SIGHUP", "watch" (of the policy's file)
	What    string  `json:"what"` // "reset", "grant", "policy", "admin token created", "admin token revoked"; "… failed" follows one that did not come about
	Limiter string  `json:"limiter,omitempty"`
	Caller  *Hashed `json:"caller,omitempty"`
	Before  any     `json:"before,omitempty"`
	After   any     `json:"after,omitempty"`
	Why     string  `json:"why,omitempty"`
}

// A Hashed caller is one that the log does not name.
type Hashed struct {
	Kinds string `json:"kinds"` // the key sources that it was named by: "ip+agent"
	Hash  string `json:"hash"`
	Token string `json:"token,omitempty"` // its public id, where that is what named it
}

// ErrAudit is wrapped by the error of a change that was refused because it could not be logged.
var ErrAudit = errors.New("the audit log cannot be written, so nothing was changed")

// Append writes an entry and returns when it is on the disk. The error wraps ErrAudit.
func (a *Audit) Append(ctx context.Context, e Entry) error {
	e.Time = a.now().UTC().Format(time.RFC3339Nano)
	line, err := json.Marshal(e) // which spells control characters out
	if err == nil {
		err = a.alone(ctx, func() error { return appendLine(a.path, append(line, '\n')) })
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrAudit, err)
	}
	return nil
}

// PolicyChange logs a change of the policy in force; for live.Options.Before.
func (a *Audit) PolicyChange(c live.Change) error {
	return a.Append(context.Background(), Entry{Who: c.By, What: "policy", Before: map[string]string{"version": c.Was},
		After: map[string]string{"version": c.Version, "source": c.Source, "path": c.Path}})
}

// alone has the log to itself.
func (a *Audit) alone(ctx context.Context, do func() error) error {
	lock := flock.New(a.path+".lock", flock.SetPermissions(0o600))
	waiting, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	if ok, err := lock.TryLockContext(waiting, 5*time.Millisecond); !ok {
		return fmt.Errorf("lock %s: %w", lock.Path(), err)
	}
	defer lock.Close()
	return do()
}

// appendLine writes a line whole or not at all. One that a power cut has left half-written is ended first.
func appendLine(path string, line []byte) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no regular file", path)
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
		return errors.Join(err, f.Truncate(size)) // the lock is held: nobody has written after it
	}
	return f.Sync()
}

// mostAudit is how much of the log's end is looked at.
const mostAudit = 4 << 20

// Last returns the last n entries as they stand there, oldest first; what is no line of JSON is left out.
func (a *Audit) Last(n int) ([]json.RawMessage, error) {
	out := []json.RawMessage{}
	info, err := os.Stat(a.path) // first, since to open a pipe may take for ever
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", a.path)
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
	from := max(info.Size()-mostAudit, 0)
	b, err := io.ReadAll(io.NewSectionReader(f, from, info.Size()-from))
	if err != nil {
		return nil, fmt.Errorf("read the audit log: %w", err)
	}
	lines := bytes.Split(b, []byte("\n"))
	if from > 0 {
		lines = lines[1:] // of which the beginning is missing
	}
	for _, line := range lines {
		if len(line) > 0 && json.Valid(line) {
			out = append(out, json.RawMessage(line))
		}
	}
	return out[max(len(out)-n, 0):], nil
}

// hash names a caller without naming it.
func (a *Audit) hash(n *named) *Hashed {
	mac := hmac.New(sha256.New, a.key)
	h := &Hashed{Kinds: n.kinds()}
	for _, source := range n.sources {
		for _, keys := range n.callers {
			value, _ := keys.AppendKey(nil, source)
			fmt.Fprintf(mac, "%s %d %s\n", source, len(value), value)
		}
		if source == "token" {
			value, _ := n.callers[0].AppendKey(nil, source)
			h.Token = string(value)
		}
	}
	h.Hash = hex.EncodeToString(mac.Sum(nil)[:8])
	return h
}
