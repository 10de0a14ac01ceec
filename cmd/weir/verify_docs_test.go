package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/internal/verify"
)

// The page lists all clauses in order and in their words, explains how each is
// observed, and names every flag.
func TestTheDocsListEveryVerifiedClause(t *testing.T) {
	page := documents(t)["docs/verify.md"]
	_, table, found := strings.Cut(page, "| clause | what holds | by | how it is seen |\n|---|---|---|---|\n")
	if !found {
		t.Fatal("docs/verify.md has no table of the clauses")
	}
	rows := strings.Split(table[:strings.Index(table, "\n\n")], "\n")
	for i, c := range verify.Clauses {
		begin := fmt.Sprintf("| `%s` | %s | %s | ", c.ID, c.Says, c.Source)
		if i >= len(rows) || !strings.HasPrefix(rows[i], begin) || len(rows[i]) < len(begin)+20 {
			t.Errorf("row %d of the table of clauses should begin %s and explain how it is seen", i+1, begin)
		}
	}
	if len(rows) > len(verify.Clauses) {
		t.Errorf("the table of clauses has %d rows, and there are %d clauses", len(rows), len(verify.Clauses))
	}
	newVerify(nil).Flags().VisitAll(func(f *pflag.Flag) {
		if !strings.Contains(page, "`--"+f.Name) {
			t.Errorf("docs/verify.md does not name --%s", f.Name)
		}
	})
}
