package sample

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/weirlimit/weir/internal/sample/sqlite"
)

const (
	maxItems    = 500 // of one bulk request
	defaultRows = 100 // of one page on the bulk-sync surface
)

// bulk parses {"items":[…]} and each item with read, which also returns the item's id. If any item
// has a problem, bulk returns no items and a refusal that lists every problem by index and reason.
func bulk[T any](r *request, read func(*form) (item T, id string)) ([]T, error) {
	f, err := r.form()
	if err != nil {
		return nil, err
	}
	raw := f.list("items", maxItems)
	if err := check(f); err != nil {
		return nil, err
	}
	items := make([]T, 0, len(raw))
	first := map[string]int{} // index at which each id was first seen
	var problems []itemProblem
	for i, object := range raw {
		item, id, reasons := readItem(object, read)
		if at, twice := first[id]; twice && id != "" {
			reasons = append(reasons, fmt.Sprintf("the same id as item %d", at))
		} else {
			first[id] = i
		}
		for _, reason := range reasons {
			problems = append(problems, itemProblem{i, id, reason})
		}
		items = append(items, item)
	}
	if len(problems) == 0 {
		return items, nil
	}
	refused := refuse(http.StatusUnprocessableEntity, "nothing was stored: item %d: %s", problems[0].Index, problems[0].Reason)
	if more := len(problems) - 1; more > 0 {
		refused.message += fmt.Sprintf(" (and %d more)", more)
	}
	refused.items = problems
	return nil, refused
}

func readItem[T any](object json.RawMessage, read func(*form) (T, string)) (item T, id string, reasons []string) {
	f, err := newForm(object)
	if err != nil {
		return item, "", []string{err.Error()}
	}
	item, id = read(f)
	return item, id, f.done()
}

// synced answers the counts of a bulk upsert.
func (r *request) synced(s sqlite.Synced) error {
	return r.answer(http.StatusOK, map[string]int{"created": s.Created, "updated": s.Updated, "unchanged": s.Unchanged})
}
