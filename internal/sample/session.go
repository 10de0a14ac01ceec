package sample

import (
	"errors"
	"net/http"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/weirlimit/weir/internal/sample/sqlite"
)

const (
	issuer      = "weir" // of session tokens
	sessionLife = 24 * time.Hour
)

// startSession handles POST /api/v1/widget/init: it starts a session with the workspace of the
// agent.
func (b *Backend) startSession(r *request) error {
	// This is the agent that the limiter counts. It comes before the body is read, because Agent
	// peeks at the body.
	agent := b.caller(r).Agent()
	f, err := r.optionalForm()
	if err != nil {
		return err
	}
	named := f.line("agent_id", 0, 256) != "" || r.Header.Get("X-Agent-Id") != "" || r.query.Get("agent_id") != ""
	if err := check(f); err != nil {
		return err
	}
	if !named { // Agent returns the User-Agent then
		return refuse(http.StatusBadRequest, `no agent: send {"agent_id":"…"}, the header X-Agent-Id or the query parameter agent_id`)
	}
	there, err := b.db.HasWorkspace(r.Context(), agent)
	if err != nil {
		return err
	}
	unknown := refuse(http.StatusNotFound, "unknown agent %s: it is the id of a workspace, and ids are case-sensitive", show(agent))
	if !there {
		return unknown
	}
	s := sqlite.Session{ID: newID("ses"), Workspace: agent, Created: r.now, Origin: b.origin(r)}
	s.Expires = r.now.Truncate(time.Second).Add(sessionLife) // tokens have whole seconds
	token, err := b.mint(s)
	if err != nil {
		return err
	}
	conversation := newID("cnv")
	if err := b.db.StartSession(r.Context(), s, conversation); errors.Is(err, sqlite.ErrNotFound) {
		return unknown // it was deleted meanwhile
	} else if err != nil {
		return err
	}
	return r.answer(http.StatusCreated, map[string]string{
		"token":           token,
		"session_id":      s.ID,
		"conversation_id": conversation,
		"expires_at":      s.Expires.UTC().Format(time.RFC3339),
	})
}

// mint signs the session's token.
func (b *Backend) mint(s sqlite.Session) (string, error) {
	t := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"iss":      issuer,
		"sid":      s.ID,
		"agent_id": s.Workspace,
		"iat":      s.Created.Unix(),
		"exp":      s.Expires.Unix(),
	})
	t.Header["kid"] = keyID
	return t.SignedString(b.secret)
}

// keyID is the id of the key that signs sessions.
const keyID = "weir-sample"
