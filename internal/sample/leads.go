package sample

import (
	"net/http"
	"net/mail"

	"github.com/weirlimit/weir/internal/sample/sqlite"
)

// postLead handles POST /api/v1/widget/leads.
func (b *Backend) postLead(r *request) error {
	f, err := r.form()
	if err != nil {
		return err
	}
	l := sqlite.Lead{
		ID:      newID("led"),
		Email:   f.line("email", 1, 254),
		Name:    f.line("name", 0, 200),
		Phone:   f.line("phone", 0, 64),
		Note:    f.text("note", 0, 4000),
		Created: r.now,
	}
	if address, err := mail.ParseAddress(l.Email); l.Email != "" && (err != nil || address.Address != l.Email) {
		f.problem("field \"email\" is %s: expected one address like ann@example.org", show(l.Email))
	}
	if err := check(f); err != nil {
		return err
	}
	if err := b.db.AddLead(r.Context(), r.session, l); err != nil {
		return err
	}
	return r.answer(http.StatusCreated, map[string]string{"id": l.ID})
}
