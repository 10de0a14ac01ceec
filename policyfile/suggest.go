package policyfile

import (
	"fmt"
	"strings"
)

// didYouMean returns a hint with the allowed word that word is probably a misspelling of, or "" if
// none is close.
func didYouMean(word string, allowed []string) string {
	if best := closest(word, allowed); best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	return ""
}

// closest returns the allowed word with the smallest edit distance from word, or "" if none is
// within one edit for each three letters (at least one edit). It ignores letter case and
// separators.
func closest(word string, allowed []string) string {
	best, limit := "", max(1, len(word)/3)+1
	for _, candidate := range allowed {
		if edits := distance(plainWord(word), plainWord(candidate)); edits < limit && edits < len(candidate) {
			best, limit = candidate, edits
		}
	}
	return best
}

// separators is built once: a policy's warnings compare each route with each method.
var separators = strings.NewReplacer("_", "", "-", "", " ", "")

func plainWord(s string) string {
	if len(s) > 64 {
		s = s[:64]
	}
	return separators.Replace(strings.ToLower(s))
}

// distance returns the edit distance of a and b: the number of bytes to insert, delete, replace or
// swap with the next one (optimal string alignment).
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
