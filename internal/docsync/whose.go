package docsync

import (
	"context"
	"encoding/json"
	"mime"
	"net/http"
)

// Whose state it is.
//
// A state belongs to a workspace of a server, and a token is only how one gets there: it may be
// rotated. The server says whose a token is in its answer to GET /v1/wp/status, in the member
// "workspace". It is asked when the state is about to be bound to a workspace, and when the token
// is another than the last time; nothing is written before it has accepted the token. A server that
// does not tell has a state bound to the token's id instead, once it has acknowledged a batch.

// longestWorkspace bounds the name that is believed, in bytes.
const longestWorkspace = 256

// Confirm finds out whose the token is, if the state does not tell. The error is ErrInterrupted or
// a *Failure: the server does not accept the token, or it is another workspace's. Plan and Push are
// for after it; a dry run, which sends nothing, does without.
func (s *Sync) Confirm(ctx context.Context) error {
	if s.o.DryRun || s.state.isSettled() {
		return nil
	}
	workspace, err := s.workspace(ctx)
	if err != nil {
		return err
	}
	return s.state.settle(workspace, s.o.All)
}

// OtherToken reports whether the state was last written with another token, and nobody has
// confirmed that it is the same workspace's.
func (s *Sync) OtherToken() bool { return s.state.otherToken }

// workspace asks the server whose the token is; empty: it does not tell.
func (s *Sync) workspace(ctx context.Context) (string, error) {
	const path = "status"
	a, err := s.tries(ctx, http.MethodGet, path, nil, false)
	if err != nil {
		return "", err
	}
	switch a.status {
	case http.StatusOK:
		var told struct {
			Workspace string `json:"workspace"`
		}
		media, _, _ := mime.ParseMediaType(a.header.Get("Content-Type"))
		if media != "application/json" || json.Unmarshal(a.body, &told) != nil || len(told.Workspace) > longestWorkspace {
			return "", nil
		}
		return told.Workspace, nil
	case http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusGone, http.StatusNotImplemented:
		return "", nil // whether it takes documents is seen when it is sent some
	}
	return "", s.unacceptable(http.MethodGet, path, a)
}
