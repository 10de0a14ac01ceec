package sample

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/sample/sqlite"
)

// Tokens are the API tokens of a data directory. Other processes may create and revoke tokens at
// the same time. Tokens implements identity.Tokens, and is safe for concurrent use.
type Tokens struct {
	db  *sqlite.DB
	now func() time.Time
	log *slog.Logger
}

var _ identity.Tokens = (*Tokens)(nil)

// OpenTokens opens only the tokens of a data directory: it creates no demo workspace and no session
// secret. It is for the command line, and for a gateway in front of an upstream.
func OpenTokens(ctx context.Context, o Options) (*Tokens, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	db, err := openDir(ctx, o)
	if err != nil {
		return nil, err
	}
	return &Tokens{db: db, now: o.Now, log: o.Log}, nil
}

// Close closes the data directory. The Tokens of a Backend are closed with it.
func (t *Tokens) Close() error { return t.db.Close() }

// A NewToken is the result of Create.
type NewToken struct {
	Token        string // the credential, which is not stored
	ID           string // its public part
	Workspace    string
	NewWorkspace bool // Create has created the workspace
}

// A TokenInfo describes a token. It does not have the secret.
type TokenInfo struct {
	ID        string
	Workspace string
	Plan      string // empty: none
	Created   time.Time
	Revoked   time.Time // zero means valid
}

// ErrNoToken means that no token has the id.
var ErrNoToken = errors.New("no such token")

// workspaceName matches names that need no quoting in a URL, a header and a shell.
var workspaceName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// Create creates a token without a plan for a workspace. If the workspace does not exist, Create
// creates it.
func (t *Tokens) Create(ctx context.Context, workspace string) (NewToken, error) {
	return t.CreateInPlan(ctx, workspace, "")
}

// CreateInPlan is Create for a token that has a plan, by which limits may differ. An empty plan is
// none.
func (t *Tokens) CreateInPlan(ctx context.Context, workspace, plan string) (NewToken, error) {
	if !workspaceName.MatchString(workspace) {
		return NewToken{}, fmt.Errorf("create token: workspace %s: expected 1 to 64 letters, digits, dots, dashes and underscores, starting with a letter or digit", show(workspace))
	}
	if err := checkPlan(plan); err != nil {
		return NewToken{}, fmt.Errorf("create token: %w", err)
	}
	token, id, hash, err := identity.NewToken(rand.Reader)
	if err != nil {
		return NewToken{}, fmt.Errorf("create token: %w", err)
	}
	made, err := t.db.AddToken(ctx, sqlite.Token{ID: id, Workspace: workspace, Plan: plan, Hash: hash, Created: t.now()})
	if err != nil {
		return NewToken{}, fmt.Errorf("create token for workspace %q: %w", workspace, err)
	}
	return NewToken{Token: token, ID: id, Workspace: workspace, NewWorkspace: made}, nil
}

// List returns every token, revoked ones too, oldest first.
func (t *Tokens) List(ctx context.Context) ([]TokenInfo, error) {
	rows, err := t.db.Tokens(ctx)
	if err != nil {
		return nil, fmt.Errorf("list tokens: %w", err)
	}
	all := make([]TokenInfo, 0, len(rows))
	for _, r := range rows {
		all = append(all, TokenInfo{r.ID, r.Workspace, r.Plan, r.Created, r.Revoked})
	}
	return all, nil
}

// Revoke revokes a token within a second in every process that uses the data directory. A token
// that is revoked already stays revoked. Revoke returns ErrNoToken for an unknown token.
func (t *Tokens) Revoke(ctx context.Context, id string) error {
	err := t.db.RevokeToken(ctx, id, t.now())
	if errors.Is(err, sqlite.ErrNotFound) {
		return fmt.Errorf("revoke token %s: %w", show(id), ErrNoToken)
	}
	if err != nil {
		return fmt.Errorf("revoke token %s: %w", show(id), err)
	}
	return nil
}

// SetPlan changes the plan of a token within a second in every process that uses the data
// directory. An empty plan is none. SetPlan returns ErrNoToken for an unknown token.
func (t *Tokens) SetPlan(ctx context.Context, id, plan string) error {
	if err := checkPlan(plan); err != nil {
		return fmt.Errorf("change the plan of token %s: %w", show(id), err)
	}
	err := t.db.SetTokenPlan(ctx, id, plan)
	if errors.Is(err, sqlite.ErrNotFound) {
		return fmt.Errorf("change the plan of token %s: %w", show(id), ErrNoToken)
	}
	if err != nil {
		return fmt.Errorf("change the plan of token %s: %w", show(id), err)
	}
	return nil
}

func checkPlan(plan string) error {
	if plan != "" && !weir.IsPlanName(plan) {
		// without the plan, which may be a whole token
		return errors.New("the plan's name: expected 1 to 64 letters, digits, dots, dashes and underscores, and not the word by")
	}
	return nil
}

// Lookup implements identity.Tokens. It reads the database each time.
func (t *Tokens) Lookup(id string) (identity.StoredToken, error) {
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	s, err := t.db.Token(ctx, id)
	if errors.Is(err, sqlite.ErrNotFound) {
		return identity.StoredToken{}, identity.ErrUnknownToken
	}
	if err != nil {
		t.log.Error("sample backend: look a token up", "token", id, "error", err)
		return identity.StoredToken{}, &lookupError{err}
	}
	return identity.StoredToken{ID: s.ID, Workspace: s.Workspace, Plan: s.Plan, Hash: s.Hash, Revoked: !s.Revoked.IsZero()}, nil
}

// lookupTimeout is the time-out of a token's look-up.
const lookupTimeout = 2 * time.Second

// A lookupError hides its cause, which is in the log, from the caller.
type lookupError struct{ cause error }

func (e *lookupError) Error() string { return "the tokens cannot be read at the moment: try again" }

func (e *lookupError) Unwrap() error { return e.cause }
