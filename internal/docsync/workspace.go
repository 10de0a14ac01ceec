package docsync

import (
	"context"
	"encoding/json"
	"mime"
	"net/http"
)

// Which workspace a state belongs to.
//
// A state belongs to a workspace of a server. The token may be rotated. The server reports the
// workspace of a token in the member "workspace" of its answer to GET /v1/wp/status. Confirm
// requests that before a state is first bound to a workspace, and if the token differs from the
// last run's. Nothing is written before the server has accepted the token. If the server does not
// report a workspace, the state is bound to the token's id after the first acknowledged batch.

// maxWorkspace is the max length of an accepted workspace name, in bytes.
const maxWorkspace = 256

// Confirm asks the server for the token's workspace if the state does not determine it. The error
// is ErrInterrupted or a *Failure: the server does not accept the token, or the token is for
// another workspace. Call it before Plan and Push. It does nothing in a dry run.
func (s *Sync) Confirm(ctx context.Context) error {
	if s.o.DryRun || s.state.isConfirmed() {
		return nil
	}
	workspace, err := s.workspace(ctx)
	if err != nil {
		return err
	}
	return s.state.confirm(workspace, s.o.All)
}

// OtherToken reports whether the state was last written with another token, and Confirm has not yet
// found that both are for the same workspace.
func (s *Sync) OtherToken() bool { return s.state.otherToken }

// workspace returns the workspace that the server reports for the token; empty if it reports none.
func (s *Sync) workspace(ctx context.Context) (string, error) {
	const path = "status"
	a, err := s.sendRetrying(ctx, http.MethodGet, path, nil, false)
	if err != nil {
		return "", err
	}
	switch a.status {
	case http.StatusOK:
		var answer struct {
			Workspace string `json:"workspace"`
		}
		media, _, _ := mime.ParseMediaType(a.header.Get("Content-Type"))
		if media != "application/json" || json.Unmarshal(a.body, &answer) != nil || len(answer.Workspace) > maxWorkspace {
			return "", nil
		}
		return answer.Workspace, nil
	case http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusGone, http.StatusNotImplemented:
		return "", nil // the first batch shows whether the server accepts documents
	}
	return "", s.unacceptable(http.MethodGet, path, a)
}
