package sample

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode"

	"github.com/weirlimit/weir/internal/sample/sqlite"
)

const (
	mostDocumentID   = 200
	mostDocumentText = 256 << 10
	mostPageText     = 4 << 20 // bytes of text after which a page ends early
)

// A document is how answers show one.
type document struct {
	ID      string `json:"id"`
	Title   string `json:"title"`
	URL     string `json:"url"`
	Text    string `json:"text"`
	Updated string `json:"updated_at"`
}

func showDocument(d sqlite.Document) document {
	return document{d.ID, d.Title, d.URL, d.Text, stamp(d.Updated)}
}

// putDocuments answers PUT /v1/wp/documents.
func (b *Backend) putDocuments(r *request) error {
	items, err := bulk(r, func(f *form) (sqlite.Document, string) {
		d := sqlite.Document{
			ID:    f.line("id", 1, mostDocumentID),
			Title: f.line("title", 1, 500),
			URL:   f.line("url", 1, 2048),
			Text:  f.text("text", 0, mostDocumentText), // a page may have none
		}
		if d.URL != "" && !linkable(d.URL) {
			f.problem("field \"url\" is %s: want an absolute http or https URL", show(d.URL)) // visitors will follow it
		}
		return d, d.ID
	})
	if err != nil {
		return err
	}
	done, err := b.db.PutDocuments(r.Context(), r.token.Workspace, items, r.now)
	if err != nil {
		return err
	}
	return r.synced(done)
}

// linkable says whether a visitor can follow an address, and sees the one that it leads to.
func linkable(address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil {
		return false
	}
	if _, err := strconv.ParseUint(u.Port(), 10, 16); u.Port() != "" && err != nil {
		return false
	}
	return !strings.ContainsFunc(address, func(r rune) bool { return unicode.IsSpace(r) || unicode.Is(unicode.Cf, r) })
}

// listDocuments answers GET /v1/wp/documents, in the order of the ids.
func (b *Backend) listDocuments(r *request) error {
	limit, err := r.limit(usualRows, mostItems)
	if err != nil {
		return err
	}
	rows, more, err := b.db.Documents(r.Context(), r.token.Workspace, r.query.Get("after"), limit, mostPageText)
	if err != nil {
		return err
	}
	return r.answer(http.StatusOK, showPage(rows, more, showDocument, func(d sqlite.Document) string { return d.ID }))
}

// deleteDocuments answers DELETE /v1/wp/documents. A document that is not there is as good as deleted.
func (b *Backend) deleteDocuments(r *request) error {
	ids, err := bulk(r, func(f *form) (string, string) {
		id := f.line("id", 1, mostDocumentID)
		return id, id
	})
	if err != nil {
		return err
	}
	deleted, err := b.db.DeleteDocuments(r.Context(), r.token.Workspace, ids)
	if err != nil {
		return err
	}
	return r.answer(http.StatusOK, map[string]int{"deleted": deleted})
}

// status answers GET /v1/wp/status: whose token this is, and what has been synced.
func (b *Backend) status(r *request) error {
	counts, err := b.db.Counts(r.Context(), r.token.Workspace)
	if err != nil {
		return err
	}
	return r.answer(http.StatusOK, struct {
		Workspace string `json:"workspace"`
		TokenID   string `json:"token_id"`
		Documents int64  `json:"documents"`
		Coupons   int64  `json:"coupons"`
		Time      string `json:"time"`
	}{r.token.Workspace, r.token.ID, counts.Documents, counts.Coupons, stamp(r.now)})
}
