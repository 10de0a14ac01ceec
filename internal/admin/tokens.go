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

	"github.com/weirlimit/weir/internal/owned"
)

// The files of a data directory.
const (
	tokensFile   = "admin-tokens" // a line for each token; see parseNamed
	operatorFile = "admin.token"  // the operator's token itself, for commands on this machine
)

// Operator is the name of the token that the first start creates. Its role is Admin.
const Operator = "operator"

// tokenPrefix begins every token, so that people and secret scanners recognize one.
const tokenPrefix = "wadm_"

// A NamedToken is an entry of the tokens file.
type NamedToken struct {
	Name    string
	Role    Role
	Created time.Time
	hash    [sha256.Size]byte
	id      string // see tokenID; set when the file is read
}

// Tokens are the admin tokens of a data directory. Other processes may create and revoke tokens at
// the same time. Tokens is safe for concurrent use.
type Tokens struct {
	dir    string
	now    func() time.Time
	random io.Reader
	audit  *Audit

	mu      sync.Mutex
	read    time.Time // when known was read; zero: never
	known   []NamedToken
	readErr error // the error of that read
}

// TokensOptions are settings of Tokens; the zero value is useful.
type TokensOptions struct {
	Now    func() time.Time // nil means time.Now
	Random io.Reader        // the source of secrets; nil means crypto/rand's Reader
	Audit  *Audit           // logs each change before it is made; nil: changes are not logged
}

// OpenTokens returns the tokens of a data directory, which must exist. It does not read them yet.
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

// Errors of Tokens that callers may check.
var (
	ErrNameTaken = errors.New("a token with that name already exists")
	ErrNoToken   = errors.New("no token has that name")
)

// tokenName matches names without spaces or control characters, for the log and the tokens file.
var tokenName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}$`)

// ValidName returns an error if name is not valid for a token.
func ValidName(name string) error {
	if !tokenName.MatchString(name) {
		return fmt.Errorf("%.80q is not a valid token name: 1 to 64 letters, digits, dots, dashes, underscores, @ and + are allowed, beginning with a letter or digit", name)
	}
	return nil
}

// OperatorPath returns the path of the file with the operator's token.
func (t *Tokens) OperatorPath() string { return filepath.Join(t.dir, operatorFile) }

// Begin creates and returns the operator's token, or returns "" if there is one already. It returns
// an error if other users can read the file with the token.
func (t *Tokens) Begin(ctx context.Context) (begun string, err error) {
	err = t.withLock(ctx, func(all []NamedToken) ([]NamedToken, error) {
		if slices.ContainsFunc(all, func(n NamedToken) bool { return n.Name == Operator }) {
			return nil, checkPrivate(t.OperatorPath())
		}
		token, n, err := t.newToken(Operator, Admin)
		if err != nil {
			return nil, err
		}
		// The token is written before its hash. After a crash in between, the next start creates
		// another token.
		if err := owned.Replace(t.OperatorPath(), []byte(token+"\n")); err != nil {
			return nil, err
		}
		if err := t.log(ctx, Entry{Who: "start", What: "admin token created", After: made{Operator, Admin}}); err != nil {
			return nil, err
		}
		begun = token
		return append(all, n), nil
	})
	if err != nil {
		return "", fmt.Errorf("make the operator's admin token: %w", err)
	}
	return begun, nil
}

// CheckOperator returns an error if the file for it does not have the operator's token.
func (t *Tokens) CheckOperator() error {
	b, err := readFile(t.OperatorPath(), maxTokenFile)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s does not exist", t.OperatorPath())
	}
	if err != nil {
		return err
	}
	all, err := t.List() // find would keep them, without one that is created at once
	if n, _ := match(all, strings.TrimSpace(string(b))); err == nil && n.Name != Operator {
		err = fmt.Errorf("%s does not have the operator's token", t.OperatorPath())
	}
	return err
}

// Create creates and returns a token for a name, with a role. why is for the audit log, and may be
// empty (see CheckWhy). It returns ErrNameTaken if there is a token of that name. The token itself
// is not stored.
func (t *Tokens) Create(ctx context.Context, name string, role Role, why string) (token string, err error) {
	if err := errors.Join(ValidName(name), CheckWhy(why)); err != nil {
		return "", fmt.Errorf("create admin token: %w", err)
	}
	if role < Metrics || role > Admin {
		return "", fmt.Errorf("create admin token %q: role %d: expected one of %s", name, role, strings.Join(RoleNames(), ", "))
	}
	err = t.withLock(ctx, func(all []NamedToken) ([]NamedToken, error) {
		if slices.ContainsFunc(all, func(n NamedToken) bool { return n.Name == name }) {
			return nil, ErrNameTaken
		}
		var n NamedToken
		var err error
		if token, n, err = t.newToken(name, role); err != nil {
			return nil, err
		}
		return append(all, n), t.log(ctx, Entry{Who: commandLine, What: "admin token created", After: made{name, role}, Why: why})
	})
	if err != nil {
		return "", fmt.Errorf("create admin token %q: %w", name, err)
	}
	return token, nil
}

// Revoke removes a token. why is as for Create. It returns ErrNoToken if no token has that name. If
// the token is the operator's, its file is removed too, and the next start creates another.
func (t *Tokens) Revoke(ctx context.Context, name, why string) error {
	if err := CheckWhy(why); err != nil {
		return fmt.Errorf("revoke admin token %.80q: %w", name, err)
	}
	err := t.withLock(ctx, func(all []NamedToken) ([]NamedToken, error) {
		rest := slices.DeleteFunc(slices.Clone(all), func(n NamedToken) bool { return n.Name == name })
		if len(rest) == len(all) {
			return nil, ErrNoToken
		}
		if err := t.log(ctx, Entry{Who: commandLine, What: "admin token revoked", After: made{Name: name}, Why: why}); err != nil {
			return nil, err
		}
		return append([]NamedToken{}, rest...), nil
	})
	if err == nil && name == Operator { // the token in the file is invalid now
		if err = os.Remove(t.OperatorPath()); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("revoke admin token %.80q: %w", name, err)
	}
	return nil
}

// commandLine is Entry.Who for changes by 'weir admin'.
const commandLine = "command line"

// A made is Entry.After of a change of a token. A token that is revoked has no role.
type made struct {
	Name string `json:"name"`
	Role Role   `json:"role,omitempty"`
}

// log writes a change of a token, which is about to be made, to the audit log.
func (t *Tokens) log(ctx context.Context, e Entry) error {
	if t.audit == nil {
		return nil
	}
	return t.audit.Append(ctx, e)
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

// newToken creates a token of 256 random bits.
func (t *Tokens) newToken(name string, role Role) (string, NamedToken, error) {
	var secret [32]byte
	if _, err := io.ReadFull(t.random, secret[:]); err != nil {
		return "", NamedToken{}, fmt.Errorf("read %d random bytes: %w", len(secret), err)
	}
	token := tokenPrefix + base64.RawURLEncoding.EncodeToString(secret[:])
	return token, NamedToken{Name: name, Role: role, Created: t.now().UTC(), hash: sha256.Sum256([]byte(token))}, nil
}

// lockTimeout is how long a process waits for another one's lock.
const lockTimeout = 10 * time.Second

// withLock replaces the tokens by the result of change, which may be nil to keep them. It holds a
// lock against other processes.
func (t *Tokens) withLock(ctx context.Context, change func([]NamedToken) ([]NamedToken, error)) error {
	path := filepath.Join(t.dir, tokensFile)
	lock := flock.New(path+".lock", flock.SetPermissions(0o600))
	if err := owned.Make(lock.Path()); err != nil {
		return fmt.Errorf("lock %s: %w", lock.Path(), err)
	}
	waiting, cancel := context.WithTimeout(ctx, lockTimeout)
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
		fmt.Fprintf(&b, "%s %s %x %s\n", n.Name, n.Role, n.hash, n.Created.Format(time.RFC3339))
	}
	if err := owned.Replace(path, b.Bytes()); err != nil {
		return err
	}
	t.mu.Lock()
	t.read = time.Time{}
	t.mu.Unlock()
	return nil
}

// tokensAge is the max age of the tokens in memory. A revoked token stops working within a second.
const tokensAge = 250 * time.Millisecond

// all returns the tokens as they were at most tokensAge ago. They must not be changed.
func (t *Tokens) all() ([]NamedToken, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := t.now(); t.read.IsZero() || now.Sub(t.read) >= tokensAge || now.Before(t.read) {
		t.known, t.readErr = readTokens(filepath.Join(t.dir, tokensFile))
		t.read = now
	}
	return t.known, t.readErr
}

// find returns the token with that secret, and false if it is unknown. It returns an error if the
// tokens cannot be read.
func (t *Tokens) find(secret string) (token NamedToken, ok bool, err error) {
	known, err := t.all()
	if err != nil {
		return NamedToken{}, false, err
	}
	token, ok = match(known, secret)
	return token, ok, nil
}

// match returns the token with a secret, and false if none has it.
func match(all []NamedToken, secret string) (token NamedToken, ok bool) {
	hash := sha256.Sum256([]byte(secret))
	for i := range all { // no early return, so that the time does not depend on the secret
		if subtle.ConstantTimeCompare(hash[:], all[i].hash[:]) == 1 {
			token, ok = all[i], true
		}
	}
	return token, ok
}

// maxTokensFile is the max size of the tokens file in bytes.
const maxTokensFile = 1 << 20

// readTokens returns the tokens of a file. A file that does not exist has none.
func readTokens(path string) ([]NamedToken, error) {
	b, err := readFile(path, maxTokensFile)
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

// readFile reads a regular file of at most limit bytes.
func readFile(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path) // before opening, which could block on a pipe
	if err != nil {
		return nil, owned.Explain(err)
	}
	if !info.Mode().IsRegular() || info.Size() > limit {
		return nil, fmt.Errorf("%s is not a regular file of at most %d bytes", path, limit)
	}
	b, err := os.ReadFile(path)
	return b, owned.Explain(err)
}

// parseNamed parses a line of the file: name, role, SHA-256 of the token in hex, creation time.
func parseNamed(words []string) (n NamedToken, err error) {
	if len(words) != 4 || !tokenName.MatchString(words[0]) {
		// The error does not quote the line, which may contain a token.
		return n, fmt.Errorf("a line is: name, role (%s), SHA-256 of the token in hex, creation time; remove the line, and create that token again with 'weir admin create NAME --role ROLE'",
			strings.Join(RoleNames(), ", "))
	}
	n.Name = words[0]
	if n.Role, err = ParseRole(words[1]); err != nil {
		return n, fmt.Errorf("the role of %s is not one of %s", n.Name, strings.Join(RoleNames(), ", "))
	}
	hash, err := hex.DecodeString(words[2])
	if err != nil || len(hash) != len(n.hash) {
		return n, fmt.Errorf("the hash of %s has %d characters or is not hex: %d hex digits are needed", n.Name, len(words[2]), 2*len(n.hash))
	}
	copy(n.hash[:], hash)
	n.id = tokenID(n.hash)
	if n.Created, err = time.Parse(time.RFC3339, words[3]); err != nil {
		return n, fmt.Errorf("the creation time of %s is %.40q: a time as in 2006-01-02T15:04:05Z is needed", n.Name, words[3])
	}
	return n, nil
}

// checkPrivate returns an error if other users can read the file. A file that does not exist is
// fine.
func checkPrivate(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	// files on Windows have no such bits
	if mode := info.Mode().Perm(); mode&0o077 != 0 && runtime.GOOS != "windows" {
		return fmt.Errorf("%s has mode %04o, so that others can read it: chmod 600 it, or 'weir admin revoke %s' for a new one", path, mode, Operator)
	}
	return nil
}

// maxTokenFile is the max size of the operator's file in bytes.
const maxTokenFile = 4 << 10

// ReadOperator returns the operator's token of a data directory, for commands on the same machine.
func ReadOperator(dir string) (string, error) {
	path := filepath.Join(dir, operatorFile)
	if err := checkPrivate(path); err != nil {
		return "", err
	}
	b, err := readFile(path, maxTokenFile)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(b))
	if !strings.HasPrefix(token, tokenPrefix) {
		return "", fmt.Errorf("%s does not hold an admin token, which begins with %s", path, tokenPrefix)
	}
	return token, nil
}
