package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"math"
	"slices"
	"strings"

	"github.com/weirlimit/weir/internal/sample/words"
)

// Found is what fits a question.
type Found struct {
	Documents []Document         // the best first; empty: nothing fits. Only the first has its whole Text
	Worth     map[string]float64 // the question's terms that any document has, each with how much it says: 1 is most
}

// What one search may cost. bm25() walks the whole list of every term asked for to count it, and looks up the length of
// every document in it, at 2 µs a posting; the commonest words of a hundred thousand documents have 100,000 postings each,
// which is 200 ms a word. So the frequencies are looked up first (10 µs a term), the rarest terms are asked for first, and
// what does not fit the budget is not asked for at all: it would hardly change the order. Each term costs 0.1 ms besides,
// a seek in each of the index's twenty segments or so. All in all that is 3 ms for half of the questions to 100,000
// documents, and 10 ms for all but one in a hundred (make bulk).
const (
	mostRead     = 256   // different terms of a question that are looked up, the first ones
	mostAsked    = 8     // terms that are asked for
	mostPostings = 2_000 // documents that these have together
	mostCommon   = 3     // terms that are asked for where each is in more documents than that
	mostRecent   = 500   // documents that are looked at then, the newest
	candidates   = 6     // documents that are judged
	mostScanned  = 8_000 // bytes of each that are gone through for it
)

// A term is one of a question, known to the workspace or not.
type term struct {
	text      string
	documents int
	worth     float64
}

// Search returns up to limit documents of the workspace that fit the question, which is text: nothing in it is syntax.
// It costs no more however long the question, however common its words and however many the documents. ErrReindexed.
func (d *DB) Search(ctx context.Context, workspace, question string, limit int) (f Found, err error) {
	asked := terms(question)
	if len(asked) == 0 {
		return Found{}, nil
	}
	err = d.read(ctx, func(tx *sql.Tx) error {
		if version, err := wordsVersion(ctx, tx); err != nil || version == 0 {
			return err // nothing was ever stored
		} else if version != words.Version {
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
		f.Worth = map[string]float64{}
		for _, t := range asked {
			if t.documents > 0 {
				f.Worth[t.text] = t.worth
			}
		}
		if f.Documents, err = q.judge(asked, limit); err != nil || len(f.Documents) == 0 {
			return err
		}
		return tx.QueryRowContext(ctx, `SELECT text FROM documents WHERE workspace_id = ? AND id = ?`, workspace, f.Documents[0].ID).Scan(&f.Documents[0].Text)
	})
	return f, err
}

// terms are the different terms of a question that say something.
func terms(question string) (asked []term) {
	seen := map[string]bool{}
	for t := range words.Of(question) {
		if seen[t.Text] || words.Stop(t.Text) {
			continue
		}
		if seen[t.Text] = true; len(seen) > mostRead {
			break
		}
		asked = append(asked, term{text: t.Text})
	}
	return asked
}

// A query is a search under way in one workspace.
type query struct {
	ctx       context.Context
	tx        *sql.Tx
	workspace int64
	documents int // that the workspace has
	postings  int // that may be read
}

// weigh finds out how common each term is and what it is worth, and sorts them, the rarest first.
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
		asked[i].worth = worth(asked[i].documents, q.documents)
	}
	slices.SortStableFunc(asked, func(a, b term) int { return cmp.Compare(a.documents, b.documents) })
	return asked, err
}

// worth is how much a term says: 1 where one document of many has it or none has, less and less the more have it.
func worth(documents, of int) float64 {
	return math.Log1p(float64(of)/float64(max(documents, 1))) / math.Log1p(float64(of))
}

// judge returns up to limit documents that fit, the best first and no two of one URL, with the beginnings of their texts.
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
		found, err = q.rows(`SELECT rowid FROM search WHERE search MATCH ? ORDER BY bm25(search, 3, 1), rowid LIMIT ?`, q.any(known), candidates)
	} else {
		known = known[:min(len(known), mostCommon)]
		found, err = q.recent(known)
	}
	if err != nil || len(found) == 0 {
		return nil, err
	}
	enough := enough(asked)
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

// read reads document n, and says whether its text was cut.
func (q *query) read(n int64) (doc Document, cut bool, err error) {
	err = q.tx.QueryRowContext(q.ctx, `
		SELECT id, title, url, coalesce(CAST(substr(CAST(text AS BLOB), 1, ?) AS TEXT), ''), octet_length(text) > ? FROM documents WHERE n = ?`, mostScanned, mostScanned, n).
		Scan(&doc.ID, &doc.Title, &doc.URL, &doc.Text, &cut)
	return doc, cut, err
}

// covered says whether the terms that document n has are worth enough together. Going through a text of usual length is
// several times as fast as asking the index; of a longer one the index knows the rest.
func (q *query) covered(n int64, doc Document, cut bool, known []term, enough float64) (bool, error) {
	missing := map[string]float64{}
	for _, t := range known {
		missing[t.text] = t.worth
	}
	for _, s := range []string{doc.Title, doc.Text} {
		for t := range words.Of(s) {
			if worth, ok := missing[t.Text]; ok {
				enough -= worth
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
			enough -= t.worth
		}
	}
	return enough <= 0, nil
}

// affordable are the first terms that fit the budget, of those sorted by how rare they are; none where the first does not.
func affordable(known []term, postings int) []term {
	n := 0
	for n < len(known) && n < mostAsked && known[n].documents <= postings {
		postings -= known[n].documents
		n++
	}
	return known[:n]
}

// enough is what the terms that a document has must be worth together for it to be an answer: a third of the question,
// less of a long one, whose writer says much beside the point.
func enough(asked []term) float64 {
	const share, long, beyond = 1. / 3, 6, 1. / 12
	sum := 0.0
	for _, t := range asked[:min(len(asked), 2*mostAsked)] {
		sum += t.worth
	}
	return share*min(sum, long) + beyond*max(sum-long, 0) - 1e-9
}

// recent finds the newest documents that have all of the terms, each of which is too common to rank by; where none of the
// newest has them all, those that have the first.
func (q *query) recent(known []term) ([]int64, error) {
	newest, err := q.rows(`SELECT rowid FROM search WHERE search MATCH ? ORDER BY rowid DESC LIMIT ?`, q.token(known[0]), mostRecent)
	if err != nil || len(newest) == 0 {
		return nil, err
	}
	all := make([]string, len(known))
	for i, t := range known {
		all[i] = q.token(t)
	}
	found, err := q.rows(`SELECT rowid FROM search WHERE search MATCH ? AND rowid >= ? ORDER BY rowid DESC LIMIT ?`,
		strings.Join(all, " AND "), newest[len(newest)-1], candidates)
	if len(found) > 0 || err != nil {
		return found, err
	}
	return newest[:min(len(newest), candidates)], nil
}

// token is t as FTS5 reads it: a string, in which a quote would end it. Terms have letters, digits and marks only.
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
