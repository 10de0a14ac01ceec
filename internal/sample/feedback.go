package sample

import (
	"errors"
	"net/http"

	"github.com/weirlimit/weir/internal/sample/sqlite"
)

// postFeedback handles POST /api/v1/widget/messages/{id}/feedback. It can be repeated with another
// value, and works in closed conversations too.
func (b *Backend) postFeedback(r *request) error {
	f, err := r.form()
	if err != nil {
		return err
	}
	helpful, _ := f.flag("helpful")
	f.require("helpful", "true or false")
	if err := check(f); err != nil {
		return err
	}
	id := r.parameters[0]
	err = b.db.SetHelpful(r.Context(), r.session.ID, id, helpful, r.now)
	switch {
	case errors.Is(err, sqlite.ErrNotFound):
		return refuse(http.StatusNotFound, "this session has no message %s", show(id))
	case errors.Is(err, sqlite.ErrOwnMessage):
		return refuse(http.StatusUnprocessableEntity, "message %s is the visitor's own: feedback is for answers, whose id is the reply's", show(id))
	case err != nil:
		return err
	}
	return r.empty()
}
