package policyfile

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/weirlimit/weir"
)

// Marshal writes p as a policy file. It leaves out fields that have their default. If p is valid,
// [Parse] of the result returns p again. If p has problems, Marshal writes what can be written.
func Marshal(p weir.Policy) []byte {
	var b bytes.Buffer
	if len(p.Limiters) == 0 {
		return []byte("limiters: []\n")
	}
	b.WriteString("limiters:\n")
	for _, l := range p.Limiters {
		fmt.Fprintf(&b, "  - name: %s\n", scalar(l.Name))
		writeList(&b, "routes", l.Routes)
		writeList(&b, "windows", l.Windows)
		if l.Cost != 0 {
			fmt.Fprintf(&b, "    cost: %d\n", l.Cost)
		}
		if l.Requires != "" {
			fmt.Fprintf(&b, "    requires: %s\n", scalar(l.Requires))
		}
		if l.Message != "" {
			fmt.Fprintf(&b, "    message: %s\n", scalar(l.Message))
		}
		if l.Mode != weir.Enforce {
			fmt.Fprintf(&b, "    mode: %s\n", scalar(l.Mode.String()))
		}
		if l.Align != weir.AlignRequest {
			fmt.Fprintf(&b, "    align: %s\n", scalar(l.Align.String()))
		}
		if p := l.Penalty; p != (weir.Penalty{}) {
			fmt.Fprintf(&b, "    penalty: {after: %s, refuse_for: %s}\n", scalar(p.Refusals()), scalar(p.RefuseFor()))
		}
		writeList(&b, "exempt", l.Exempt)
		writeList(&b, "overrides", l.Overrides)
		if l.OnStoreFailure != weir.FailLocal {
			fmt.Fprintf(&b, "    on_store_failure: %s\n", scalar(l.OnStoreFailure.String()))
		}
	}
	return b.Bytes()
}

// writeList writes a list of one item in brackets, and a longer list with one item a line.
func writeList[T fmt.Stringer](b *bytes.Buffer, field string, items []T) {
	switch len(items) {
	case 0:
	case 1:
		fmt.Fprintf(b, "    %s: [%s]\n", field, scalar(items[0].String()))
	default:
		fmt.Fprintf(b, "    %s:\n", field)
		for _, item := range items {
			fmt.Fprintf(b, "      - %s\n", scalar(item.String()))
		}
	}
}

// plain matches text that needs no quotes for any YAML reader, in brackets or outside, except for
// keywords.
var plain = regexp.MustCompile(`^(?:[A-Za-z]|/[A-Za-z0-9_.*/-]|[0-9]+ [a-z])[A-Za-z0-9_.*+/ -]*$`)

// keywords are words that some YAML readers parse as another type than text.
var keywords = []string{"null", "true", "false", "yes", "no", "on", "off", "y", "n"}

func scalar(s string) string {
	if plain.MatchString(s) && !slices.Contains(keywords, s) && s[len(s)-1] != ' ' {
		return s
	}
	return strconv.QuoteToGraphic(s)
}
