package admin

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"
)

// The files of a data directory.
const (
	tokensFile   = "admin-tokens" // a line for each token: name, SHA-256 in hex, when it was made
	operatorFile = "admin.token"  // the operator's token itself, for commands on this machine
)

// Operator is the name of the token that the first start makes.
const Operator = "operator"

// tokenPrefix is what a token begins with, so that people and scanners know one when they see it.
const tokenPrefix = "wadm_"

// A NamedToken is what is known of a token.
type NamedToken struct {
	Name    string
	Created time.Time
	hash    [sha256.Size]byte
	id      string // see tokenID; set by what reads the file
}

// Tokens are those of a data directory. Other processes may create and revoke them at the same time. It is safe for concurrent use.
type Tokens struct {
	dir    string
	now    func() time.Time
	random io.Reader
	audit  *Audit

	mu    sync.Mutex
	read  time.Time // when known was read; zero: never
	known []NamedToken
	bad   error // why it could not be
}

// TokensOptions are settings of Tokens; the zero value is useful.
type TokensOptions struct {
	Now    func() time.Time // nil means time.Now
	Random io.Reader        // where secrets come from; nil means crypto/rand's Reader
	Audit  *Audit           // hears who was given a token or lost one, before it is so; nil: nobody does
}

// OpenTokens returns the tokens of a data directory, which must be there; it reads nothing yet.
func OpenTokens(dir string, o TokensOptions) *Tokens {
	t := &Tokens{dir: dir, now: o.Now, random: o.Random, audit: o.Audit}
	if t.now == nil {
		t.now = time.Now
	}
	if t.random == nil {
		t.random = rand.Reader
	}
	return t
}

// Errors of Tokens that callers tell apart.
var (
	ErrNameTaken = errors.New("there is a token of that name already")
	ErrNoToken   = errors.New("there is no token of that name")
)

// tokenName is what may stand in a log and a file of words.
var tokenName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}$`)

// ValidName says what is wrong with the name of a token; nil where nothing is.
func ValidName(name string) error {
	if !tokenName.MatchString(name) {
		return fmt.Errorf("%.80q is no name for a token: 1 to 64 letters, digits, dots, dashes, underscores, @ and + are allowed, beginning with a letter or digit", name)
	}
	return nil
}

// OperatorPath is where the operator's token is kept.
func (t *Tokens) OperatorPath() string { return filepath.Join(t.dir, operatorFile) }

// Begin makes the operator's token where there is none of that name, and returns it; empty: there is one already. It errs where the
// file with the token can be read by others.
func (t *Tokens) Begin(ctx context.Context) (made string, err error) {
	err = t.alone(ctx, func(all []NamedToken) ([]NamedToken, error) {
		if slices.ContainsFunc(all, func(n NamedToken) bool { return n.Name == Operator }) {
			return nil, private(t.OperatorPath())
		}
		token, n, err := t.mint(Operator)
		if err != nil {
			return nil, err
		}
		// First the token, then its hash: what is killed in between is begun anew.
		if err := replace(t.OperatorPath(), []byte(token+"\n")); err != nil {
			return nil, err
		}
		if err := t.log(ctx, "start", "admin token created", Operator); err != nil {
			return nil, err
		}
		made = token
		return append(all, n), nil
	})
	if err != nil {
		return "", fmt.Errorf("make the operator's admin token: %w", err)
	}
	return made, nil
}

// Create makes a token for a name, which must be new: ErrNameTaken. The token is kept nowhere.
func (t *Tokens) Create(ctx context.Context, name string) (token string, err error) {
	if err := ValidName(name); err != nil {
		return "", fmt.Errorf("create admin token: %w", err)
	}
	err = t.alone(ctx, func(all []NamedToken) ([]NamedToken, error) {
		if slices.ContainsFunc(all, func(n NamedToken) bool { return n.Name == name }) {
			return nil, ErrNameTaken
		}
		var n NamedToken
		var err error
		if token, n, err = t.mint(name); err != nil {
			return nil, err
		}
		return append(all, n), t.log(ctx, commandLine, "admin token created", name)
	})
	if err != nil {
		return "", fmt.Errorf("create admin token %q: %w", name, err)
	}
	return token, nil
}

// Revoke ends a token; ErrNoToken where there is none of that name. The operator's file goes with it, and the next start makes another.
func (t *Tokens) Revoke(ctx context.Context, name string) error {
	err := t.alone(ctx, func(all []NamedToken) ([]NamedToken, error) {
		rest := slices.DeleteFunc(slices.Clone(all), func(n NamedToken) bool { return n.Name == name })
		if len(rest) == len(all) {
			return nil, ErrNoToken
		}
		if err := t.log(ctx, commandLine, "admin token revoked", name); err != nil {
			return nil, err
		}
		return append([]NamedToken{}, rest...), nil
	})
	if err == nil && name == Operator { // it means nothing any more
		if err = os.Remove(t.OperatorPath()); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("revoke admin token %.80q: %w", name, err)
	}
	return nil
}

// commandLine is who changes tokens by 'weir admin'.
const commandLine = "command line"

// log tells the audit log what is about to happen to a token.
func (t *Tokens) log(ctx context.Context, who, what, name string) error {
	if t.audit == nil {
		return nil
	}
	return t.audit.Append(ctx, Entry{Who: who, What: what, After: map[string]string{"name": name}})
}

// List returns all tokens, by name.
func (t *Tokens) List() ([]NamedToken, error) {
	all, err := readTokens(filepath.Join(t.dir, tokensFile))
	if err != nil {
		return nil, fmt.Errorf("list admin tokens: %w", err)
	}
	slices.SortFunc(all, func(a, b NamedToken) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// mint makes a token: 256 random bits.
func (t *Tokens) mint(name string) (string, NamedToken, error) {
	var secret [32]byte
	if _, err := io.ReadFull(t.random, secret[:]); err != nil {
		return "", NamedToken{}, fmt.Errorf("read %d random bytes: %w", len(secret), err)
	}
	token := tokenPrefix + base64.RawURLEncoding.EncodeToString(secret[:])
	return token, NamedToken{Name: name, Created: t.now().UTC(), hash: sha256.Sum256([]byte(token))}, nil
}

// lockPatience is how long a process waits for another that changes the tokens.
const lockPatience = 10 * time.Second

// alone replaces the tokens by what change makes of them, as the only process that does so; nil leaves them as they are.
func (t *Tokens) alone(ctx context.Context, change func([]NamedToken) ([]NamedToken, error)) error {
	path := filepath.Join(t.dir, tokensFile)
	lock := flock.New(path+".lock", flock.SetPermissions(0o600))
	waiting, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	if ok, err := lock.TryLockContext(waiting, 20*time.Millisecond); !ok {
		return fmt.Errorf("lock %s: %w", lock.Path(), err)
	}
	defer lock.Close()
	all, err := readTokens(path)
	if err != nil {
		return err
	}
	next, err := change(all)
	if err != nil || next == nil {
		return err
	}
	var b bytes.Buffer
	for _, n := range next {
		fmt.Fprintf(&b, "%s %x %s\n", n.Name, n.hash, n.Created.Format(time.RFC3339))
	}
	if err := replace(path, b.Bytes()); err != nil {
		return err
	}
	t.mu.Lock()
	t.read = time.Time{}
	t.mu.Unlock()
	return nil
}

// tokensAge is how old the known tokens may be: a revoked one stops working well within a second.
const tokensAge = 250 * time.Millisecond

// all returns the tokens as they were at most tokensAge ago. They must not be changed.
func (t *Tokens) all() ([]NamedToken, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := t.now(); t.read.IsZero() || now.Sub(t.read) >= tokensAge || now.Before(t.read) {
		t.known, t.bad = readTokens(filepath.Join(t.dir, tokensFile))
		t.read = now
	}
	return t.known, t.bad
}

// find returns the name of a token, and false if it is unknown. It returns an error if the tokens cannot be read.
func (t *Tokens) find(token string) (name string, ok bool, err error) {
	known, err := t.all()
	if err != nil {
		return "", false, err
	}
	hash := sha256.Sum256([]byte(token))
	for i := range known { // all of them, however early one fits
		if subtle.ConstantTimeCompare(hash[:], known[i].hash[:]) == 1 {
			name, ok = known[i].Name, true
		}
	}
	return name, ok, nil
}

// mostTokens bounds the file.
const mostTokens = 1 << 20

// readTokens returns the tokens of a file; none where there is no file.
func readTokens(path string) ([]NamedToken, error) {
	b, err := readWhole(path, mostTokens)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return []NamedToken{}, nil
	case err != nil:
		return nil, fmt.Errorf("read the admin tokens: %w", err)
	}
	all := []NamedToken{}
	lines := bufio.NewScanner(bytes.NewReader(b))
	for n := 1; lines.Scan(); n++ {
		words := strings.Fields(lines.Text())
		if len(words) == 0 {
			continue
		}
		token, err := parseNamed(words)
		if err != nil {
			return nil, fmt.Errorf("read the admin tokens: %s:%d: %w", path, n, err)
		}
		all = append(all, token)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the admin tokens: %s: %w", path, err)
	}
	return all, nil
}

// readWhole reads a regular file of most bytes at most.
func readWhole(path string, most int64) ([]byte, error) {
	info, err := os.Stat(path) // first, since to open a pipe may take for ever
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > most {
		return nil, fmt.Errorf("%s is no regular file of %d bytes at most", path, most)
	}
	return os.ReadFile(path)
}

func parseNamed(words []string) (n NamedToken, err error) {
	if len(words) != 3 || !tokenName.MatchString(words[0]) {
		return n, errors.New("a line is: name, SHA-256 of the token in hex, when it was made") // no more of it: a token may stand there
	}
	n.Name = words[0]
	hash, err := hex.DecodeString(words[1])
	if err != nil || len(hash) != len(n.hash) {
		return n, fmt.Errorf("the hash of %s has %d characters or is no hex: %d hex digits are needed", n.Name, len(words[1]), 2*len(n.hash))
	}
	copy(n.hash[:], hash)
	n.id = tokenID(n.hash)
	if n.Created, err = time.Parse(time.RFC3339, words[2]); err != nil {
		return n, fmt.Errorf("when %s was made is %.40q: a time as in 2006-01-02T15:04:05Z is needed", n.Name, words[2])
	}
	return n, nil
}

// private says that others can read a file; nil where they cannot, or there is none.
func private(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 && runtime.GOOS != "windows" { // whose files have no such bits
		return fmt.Errorf("%s has mode %04o, so that others can read it: chmod 600 it, or 'weir admin revoke %s' for a new one", path, mode, Operator)
	}
	return nil
}

// replace puts b at path in one step, for its owner's eyes alone. The lock is held: nobody else makes the file beside it.
func replace(path string, b []byte) error {
	temporary := path + ".new"
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(temporary, path); err != nil {
		return err
	}
	if runtime.GOOS == "windows" {
		return nil // where directories cannot be synced
	}
	d, err := os.Open(filepath.Dir(path)) // so that the name survives a power cut too
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// mostToken bounds the operator's file.
const mostToken = 4 << 10

// ReadOperator returns the operator's token of a data directory, for commands on the same machine.
func ReadOperator(dir string) (string, error) {
	path := filepath.Join(dir, operatorFile)
	if err := private(path); err != nil {
		return "", err
	}
	b, err := readWhole(path, mostToken)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(b))
	if !strings.HasPrefix(token, tokenPrefix) {
		return "", fmt.Errorf("%s holds no admin token: those begin with %s", path, tokenPrefix)
	}
	return token, nil
}
