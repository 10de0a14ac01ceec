package sample

import (
	"net/http"

	"github.com/weirlimit/weir/internal/sample/sqlite"
)

// postTyping handles POST /api/v1/widget/typing.
func (b *Backend) postTyping(r *request) error {
	f, err := r.form()
	if err != nil {
		return err
	}
	typing, _ := f.flag("typing")
	f.require("typing", "true or false")
	conversation := f.line("conversation_id", 0, maxID)
	if err := check(f); err != nil {
		return err
	}
	if err := b.db.SetTyping(r.Context(), r.session.ID, conversation, typing, r.now); err != nil {
		return aboutConversation(conversation, err)
	}
	return r.empty()
}

// postSatisfaction handles POST /api/v1/widget/satisfaction.
func (b *Backend) postSatisfaction(r *request) error {
	f, err := r.form()
	if err != nil {
		return err
	}
	score, _ := f.integer("score", 1, 5)
	f.require("score", "a whole number from 1 to 5")
	rating := sqlite.Rating{ID: newID("rat"), Score: int(score), Comment: f.text("comment", 0, 2000), Created: r.now}
	conversation := f.line("conversation_id", 0, maxID)
	if err := check(f); err != nil {
		return err
	}
	if err := b.db.Rate(r.Context(), r.session.ID, conversation, rating); err != nil {
		return aboutConversation(conversation, err)
	}
	return r.answer(http.StatusCreated, map[string]string{"id": rating.ID})
}
