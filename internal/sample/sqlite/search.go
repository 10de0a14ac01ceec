package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"math"
	"slices"
	"strings"

	"github.com/weirlimit/weir/internal/sample/terms"
)

// Found is the result of a search.
type Found struct {
	Documents []Document // best first; only the first has its whole Text
	// Weights are those of the question's terms that any document has. The max is 1.
	Weights map[string]float64
}

// The budget of one search. bm25() reads the whole document list of every term to count it, and
// looks up the length of every document, at 2 µs a posting. The commonest words of 100,000
// documents have 100,000 postings each, which takes 200 ms a word. Search therefore looks up the
// frequencies first (10 µs a term), searches for the rarest terms first, and leaves out the terms
// that exceed the budget, which would hardly change the order. Each term also costs 0.1 ms for a
// seek in each of about twenty segments of the index. With 100,000 documents, half of the questions
// take 3 ms and all but one in a hundred 10 ms (make bulk).
const (
	maxLookedUp   = 256   // different terms of a question that are looked up, from its start
	maxSearched   = 8     // terms that are searched for
	maxPostings   = 2_000 // postings of these terms
	maxCommon     = 3     // terms that are searched for if each has more than maxPostings
	maxRecent     = 500   // newest documents that are considered in that case
	maxCandidates = 6     // documents that are checked against the threshold
	maxScanned    = 8_000 // bytes of text of each that are scanned for that
)

// A term is a term of a question. Its workspace may have no document with it.
type term struct {
	text      string
	documents int
	weight    float64
}

// Search returns up to limit documents of the workspace that fit the question. The question is
// plain text without syntax. The cost is bounded, whatever the length of the question, the
// frequency of its words and the number of documents. Search returns ErrReindexed for an index that
// another version has built.
func (d *DB) Search(ctx context.Context, workspace, question string, limit int) (f Found, err error) {
	asked := questionTerms(question)
	if len(asked) == 0 {
		return Found{}, nil
	}
	err = d.read(ctx, func(tx *sql.Tx) error {
		if version, err := termsVersion(ctx, tx); err != nil || version == 0 {
			return err // no document was ever stored
		} else if version != terms.Version {
			return ErrReindexed
		}
		q := query{ctx: ctx, tx: tx, postings: d.postings}
		row := tx.QueryRowContext(ctx, `SELECT n, documents FROM search_workspaces WHERE workspace_id = ?`, workspace)
		if err := row.Scan(&q.workspace, &q.documents); err == sql.ErrNoRows || err == nil && q.documents == 0 {
			return nil
		} else if err != nil {
			return err
		}
		if asked, err = q.weigh(asked); err != nil {
			return err
		}
		f.Weights = map[string]float64{}
		for _, t := range asked {
			if t.documents > 0 {
				f.Weights[t.text] = t.weight
			}
		}
		if f.Documents, err = q.judge(asked, limit); err != nil || len(f.Documents) == 0 {
			return err
		}
		return tx.QueryRowContext(ctx, `SELECT text FROM documents WHERE workspace_id = ? AND id = ?`, workspace, f.Documents[0].ID).Scan(&f.Documents[0].Text)
	})
	return f, err
}

// questionTerms returns the different terms of a question that are not stop words.
func questionTerms(question string) (asked []term) {
	seen := map[string]bool{}
	for t := range terms.Of(question) {
		if seen[t.Text] || terms.Stop(t.Text) {
			continue
		}
		if seen[t.Text] = true; len(seen) > maxLookedUp {
			break
		}
		asked = append(asked, term{text: t.Text})
	}
	return asked
}

// A query is a search in one workspace.
type query struct {
	ctx       context.Context
	tx        *sql.Tx
	workspace int64
	documents int // of the workspace
	postings  int // max postings to read
}

// weigh sets the frequency and weight of each term and sorts the terms, the rarest first.
func (q *query) weigh(asked []term) ([]term, error) {
	at := map[string]*term{}
	list := make([]string, len(asked))
	for i := range asked {
		list[i] = asked[i].text
		at[asked[i].text] = &asked[i]
	}
	names, err := json.Marshal(list)
	if err != nil {
		return nil, err
	}
	rows, err := q.tx.QueryContext(q.ctx, `
		SELECT term, documents FROM search_terms
		WHERE workspace = ? AND term IN (SELECT value FROM json_each(?))`, q.workspace, string(names))
	err = collect(rows, err, func() error {
		var text string
		var documents int
		err := rows.Scan(&text, &documents)
		if t := at[text]; t != nil {
			t.documents = documents
		}
		return err
	})
	for i := range asked {
		asked[i].weight = weightOf(asked[i].documents, q.documents)
	}
	slices.SortStableFunc(asked, func(a, b term) int { return cmp.Compare(a.documents, b.documents) })
	return asked, err
}

// weightOf returns the weight of a term: 1 if at most one document has it, and less the more
// documents have it.
func weightOf(documents, of int) float64 {
	return math.Log1p(float64(of)/float64(max(documents, 1))) / math.Log1p(float64(of))
}

// judge returns up to limit documents that fit, best first and no two with the same URL, with the
// beginnings of their texts.
func (q *query) judge(asked []term, limit int) (fits []Document, err error) {
	unknown := 0
	for unknown < len(asked) && asked[unknown].documents == 0 {
		unknown++
	}
	known := asked[unknown:]
	if len(known) == 0 {
		return nil, nil
	}
	var found []int64
	if few := affordable(known, q.postings); len(few) > 0 {
		known = few
		found, err = q.rows(`SELECT rowid FROM search WHERE search MATCH ? ORDER BY bm25(search, 3, 1), rowid LIMIT ?`, q.any(known), maxCandidates)
	} else {
		known = known[:min(len(known), maxCommon)]
		found, err = q.recent(known)
	}
	if err != nil || len(found) == 0 {
		return nil, err
	}
	enough := threshold(asked)
	for _, n := range found {
		doc, cut, err := q.read(n)
		if err != nil {
			return nil, err
		}
		covered, err := q.covered(n, doc, cut, known, enough)
		if err != nil {
			return nil, err
		}
		if covered && !slices.ContainsFunc(fits, func(d Document) bool { return d.URL == doc.URL }) {
			fits = append(fits, doc)
		}
		if len(fits) == limit {
			break
		}
	}
	return fits, nil
}

// read reads document n, and reports whether its text was truncated.
func (q *query) read(n int64) (doc Document, cut bool, err error) {
	err = q.tx.QueryRowContext(q.ctx, `
		SELECT id, title, url, coalesce(CAST(substr(CAST(text AS BLOB), 1, ?) AS TEXT), ''), octet_length(text) > ? FROM documents WHERE n = ?`, maxScanned, maxScanned, n).
		Scan(&doc.ID, &doc.Title, &doc.URL, &doc.Text, &cut)
	return doc, cut, err
}

// covered reports whether the sum of the weights of the terms that document n has reaches enough.
// Scanning a text of usual length is several times as fast as a query of the index. If the text was
// truncated, the index is queried for the missing terms.
func (q *query) covered(n int64, doc Document, cut bool, known []term, enough float64) (bool, error) {
	missing := map[string]float64{}
	for _, t := range known {
		missing[t.text] = t.weight
	}
	for _, s := range []string{doc.Title, doc.Text} {
		for t := range terms.Of(s) {
			if weight, ok := missing[t.Text]; ok {
				enough -= weight
				delete(missing, t.Text)
			}
			if enough <= 0 {
				return true, nil
			}
		}
	}
	for _, t := range known {
		if _, ok := missing[t.text]; !ok || !cut {
			continue
		}
		has, err := q.rows(`SELECT rowid FROM search WHERE search MATCH ? AND rowid = ?`, q.token(t), n)
		if err != nil {
			return false, err
		}
		if len(has) > 0 {
			enough -= t.weight
		}
	}
	return enough <= 0, nil
}

// affordable returns the first terms that fit the budget. known is sorted, the rarest first. The
// result is empty if the first term exceeds the budget.
func affordable(known []term, postings int) []term {
	n := 0
	for n < len(known) && n < maxSearched && known[n].documents <= postings {
		postings -= known[n].documents
		n++
	}
	return known[:n]
}

// threshold returns the min sum of weights at which a document is an answer: a third of the
// question's weight, and less of the weight beyond that of a long question, which has many words
// beside the point.
func threshold(asked []term) float64 {
	const share, long, beyond = 1. / 3, 6, 1. / 12
	sum := 0.0
	for _, t := range asked[:min(len(asked), 2*maxSearched)] {
		sum += t.weight
	}
	return share*min(sum, long) + beyond*max(sum-long, 0) - 1e-9
}

// recent finds the newest documents that have all of the terms, which are all too common for
// ranking. If none of the newest has them all, recent returns those with the first term.
func (q *query) recent(known []term) ([]int64, error) {
	newest, err := q.rows(`SELECT rowid FROM search WHERE search MATCH ? ORDER BY rowid DESC LIMIT ?`, q.token(known[0]), maxRecent)
	if err != nil || len(newest) == 0 {
		return nil, err
	}
	all := make([]string, len(known))
	for i, t := range known {
		all[i] = q.token(t)
	}
	found, err := q.rows(`SELECT rowid FROM search WHERE search MATCH ? AND rowid >= ? ORDER BY rowid DESC LIMIT ?`,
		strings.Join(all, " AND "), newest[len(newest)-1], maxCandidates)
	if len(found) > 0 || err != nil {
		return found, err
	}
	return newest[:min(len(newest), maxCandidates)], nil
}

// token returns t as an FTS5 string. Terms have only letters, digits and marks, so there is no
// quote to escape.
func (q *query) token(t term) string { return `"` + prefixOf(q.workspace) + t.text + `"` }

func (q *query) any(some []term) string {
	all := make([]string, len(some))
	for i, t := range some {
		all[i] = q.token(t)
	}
	return strings.Join(all, " OR ")
}

func (q *query) rows(query string, args ...any) (all []int64, err error) {
	rows, err := q.tx.QueryContext(q.ctx, query, args...)
	err = collect(rows, err, func() error {
		var n int64
		err := rows.Scan(&n)
		all = append(all, n)
		return err
	})
	return all, err
}
