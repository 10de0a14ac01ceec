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
	maxDocumentID   = 200
	maxDocumentText = 256 << 10
	maxPageText     = 4 << 20 // bytes of text after which a page ends early
)

// A document is the JSON of a document.
type document struct {
	ID      string `json:"id"`
	Title   string `json:"title"`
	URL     string `json:"url"`
	Text    string `json:"text"`
	Updated string `json:"updated_at"`
}

func showDocument(d sqlite.Document) document {
	return document{d.ID, d.Title, d.URL, d.Text, formatTime(d.Updated)}
}

// putDocuments handles PUT /v1/wp/documents.
func (b *Backend) putDocuments(r *request) error {
	items, err := bulk(r, func(f *form) (sqlite.Document, string) {
		d := sqlite.Document{
			ID:    f.line("id", 1, maxDocumentID),
			Title: f.line("title", 1, 500),
			URL:   f.line("url", 1, 2048),
			Text:  f.text("text", 0, maxDocumentText), // a page may have no text
		}
		if d.URL != "" && !linkable(d.URL) {
			// Visitors see it as a link.
			f.problem("field \"url\" is %s: expected an absolute http or https URL", show(d.URL))
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

// linkable reports whether an address is a URL that a visitor can follow and that shows where it
// leads.
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

// listDocuments handles GET /v1/wp/documents, in the order of the ids.
func (b *Backend) listDocuments(r *request) error {
	limit, err := r.limit(defaultRows, maxItems)
	if err != nil {
		return err
	}
	rows, more, err := b.db.Documents(r.Context(), r.token.Workspace, r.query.Get("after"), limit, maxPageText)
	if err != nil {
		return err
	}
	return r.answer(http.StatusOK, showPage(rows, more, showDocument, func(d sqlite.Document) string { return d.ID }))
}

// deleteDocuments handles DELETE /v1/wp/documents. It ignores documents that do not exist.
func (b *Backend) deleteDocuments(r *request) error {
	ids, err := bulk(r, func(f *form) (string, string) {
		id := f.line("id", 1, maxDocumentID)
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

// status handles GET /v1/wp/status: the token's workspace and the number of synced rows.
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
	}{r.token.Workspace, r.token.ID, counts.Documents, counts.Coupons, formatTime(r.now)})
}
