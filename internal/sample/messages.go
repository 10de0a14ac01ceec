package sample

import (
	"errors"
	"net/http"

	"github.com/weirlimit/weir/internal/sample/sqlite"
)

const maxText = 8000 // bytes of one message

// A message is the JSON of a message.
type message struct {
	ID           string          `json:"id"`
	Conversation string          `json:"conversation_id"`
	Author       string          `json:"author"`
	Text         string          `json:"text"`
	Sources      []sqlite.Source `json:"sources,omitempty"`
	Created      string          `json:"created_at"`
}

func showMessage(m sqlite.Message) message {
	return message{m.ID, m.Conversation, m.Author, m.Text, m.Sources, formatTime(m.Created)}
}

// postMessage handles POST /api/v1/widget/messages: it stores the visitor's message together with
// the answer.
func (b *Backend) postMessage(r *request) error {
	f, err := r.form()
	if err != nil {
		return err
	}
	text := f.text("text", 1, maxText)
	conversation := f.line("conversation_id", 0, maxID)
	if err := check(f); err != nil {
		return err
	}
	said := sqlite.Message{ID: newID("msg"), Author: sqlite.Visitor, Text: text, Created: r.now}
	reply, err := b.answerTo(r, said)
	if err != nil {
		return err
	}
	id, err := b.db.AddMessages(r.Context(), r.session.ID, conversation, said, reply)
	if err != nil {
		return aboutConversation(conversation, err)
	}
	said.Conversation, reply.Conversation = id, id
	var answer struct {
		Message message `json:"message"`
		Reply   struct {
			message
			Sources []sqlite.Source `json:"sources"` // an empty list if there are none
		} `json:"reply"`
	}
	answer.Message = showMessage(said)
	answer.Reply.message = showMessage(reply)
	answer.Reply.Sources = append([]sqlite.Source{}, reply.Sources...)
	return r.answer(http.StatusCreated, answer)
}

// aboutConversation translates an error about the conversation with that id, which is empty if the
// caller named none.
func aboutConversation(id string, err error) error {
	const start = "POST /api/v1/widget/conversations starts one"
	switch {
	case errors.Is(err, sqlite.ErrNoneOpen):
		return refuse(http.StatusConflict, "every conversation of this session is closed: %s", start)
	case errors.Is(err, sqlite.ErrClosed):
		return refuse(http.StatusConflict, "conversation %s is closed: %s", show(id), start)
	case errors.Is(err, sqlite.ErrNotFound):
		return refuse(http.StatusNotFound, "this session has no conversation %s", show(id))
	}
	return err
}
