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

// startSession answers POST /api/v1/widget/init: it starts a visitor's session with the workspace that the agent belongs to.
func (b *Backend) startSession(r *request) error {
	agent := b.caller(r).Agent() // the one that the request was counted by; it looks into the body, so it comes first
	f, err := r.optionalForm()
	if err != nil {
		return err
	}
	named := f.line("agent_id", 0, 256) != "" || r.Header.Get("X-Agent-Id") != "" || r.query.Get("agent_id") != ""
	if err := check(f); err != nil {
		return err
	}
	if !named { // or the agent would be whatever browser this is
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
	s.Expires = r.now.Truncate(time.Second).Add(sessionLife) // what the token can say
	token, err := b.mint(s)
	if err != nil {
		return err
	}
	conversation := newID("cnv")
	if err := b.db.StartSession(r.Context(), s, conversation); errors.Is(err, sqlite.ErrNotFound) {
		return unknown // it went away meanwhile
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

// keyID names the key that signs sessions.
const keyID = "weir-sample"
