package sample

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/weirlimit/weir/internal/sample/sqlite"
)

const (
	mostItems = 500 // of one bulk request
	usualRows = 100 // of one page on the bulk-sync surface
)

// bulk reads {"items":[…]}, each item with read, which returns what it is known by. Nothing of a request with any problem
// is for use: the refusal names every item at fault, by index and reason.
func bulk[T any](r *request, read func(*form) (item T, id string)) ([]T, error) {
	f, err := r.form()
	if err != nil {
		return nil, err
	}
	raw := f.list("items", mostItems)
	if err := check(f); err != nil {
		return nil, err
	}
	items := make([]T, 0, len(raw))
	first := map[string]int{} // where each id was seen
	var problems []itemProblem
	for i, object := range raw {
		item, id, reasons := one(object, read)
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
	told := refuse(http.StatusUnprocessableEntity, "nothing was stored: item %d: %s", problems[0].Index, problems[0].Reason)
	if more := len(problems) - 1; more > 0 {
		told.message += fmt.Sprintf(" (and %d more)", more)
	}
	told.items = problems
	return nil, told
}

func one[T any](object json.RawMessage, read func(*form) (T, string)) (item T, id string, reasons []string) {
	f, err := newForm(object)
	if err != nil {
		return item, "", []string{err.Error()}
	}
	item, id = read(f)
	return item, id, f.done()
}

// synced answers what a bulk upsert did.
func (r *request) synced(s sqlite.Synced) error {
	return r.answer(http.StatusOK, map[string]int{"created": s.Created, "updated": s.Updated, "unchanged": s.Unchanged})
}
