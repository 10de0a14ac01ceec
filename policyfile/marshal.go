package policyfile

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

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
		writeCost(&b, &l)
		writeCount(&b, &l.Count)
		if l.InFlight.Limit != 0 || l.InFlight.Key != nil {
			fmt.Fprintf(&b, "    in_flight: %s\n", scalar(l.InFlight.String()))
		}
		if l.Requires != "" {
			fmt.Fprintf(&b, "    requires: %s\n", scalar(l.Requires))
		}
		if l.Chosen {
			b.WriteString("    chosen: yes\n")
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
		writeList(&b, "deny", l.Deny)
		writeList(&b, "overrides", l.Overrides)
		writePlans(&b, &l.Plans)
		if l.Answers != weir.AnswerBackend {
			fmt.Fprintf(&b, "    answers: %s\n", scalar(l.Answers.String()))
		}
		if len(l.Notify) > 0 {
			fmt.Fprintf(&b, "    notify: [%s]\n", strings.Trim(strings.Join(strings.Fields(fmt.Sprint(l.Notify)), ", "), "[]"))
		}
		if l.OnStoreFailure != weir.FailLocal {
			fmt.Fprintf(&b, "    on_store_failure: %s\n", scalar(l.OnStoreFailure.String()))
		}
	}
	writeMessages(&b, p.Messages)
	writeAnswers(&b, &p.Answers)
	return b.Bytes()
}

func writeMessages(b *bytes.Buffer, messages map[string]weir.Texts) {
	if len(messages) == 0 {
		return
	}
	b.WriteString("messages:\n")
	for _, name := range slices.Sorted(maps.Keys(messages)) {
		writeMap(b, "  ", name, messages[name])
	}
}

func writeAnswers(b *bytes.Buffer, a *weir.Answers) {
	var inner bytes.Buffer
	if a.Format != weir.FormatError {
		fmt.Fprintf(&inner, "  format: %s\n", scalar(a.Format.String()))
	}
	writeAnswer(&inner, "refused", &a.Refused)
	writeAnswer(&inner, "unauthenticated", &a.Unauthenticated)
	writeAnswer(&inner, "unavailable", &a.Unavailable)
	if inner.Len() > 0 {
		b.WriteString("answers:\n")
		b.Write(inner.Bytes())
	}
}

func writeAnswer(b *bytes.Buffer, name string, a *weir.Answer) {
	var inner bytes.Buffer
	if a.Status != 0 {
		fmt.Fprintf(&inner, "    status: %d\n", a.Status)
	}
	if a.Message != "" {
		fmt.Fprintf(&inner, "    message: %s\n", scalar(a.Message))
	}
	writeMap(&inner, "    ", "credentials", a.Credentials)
	writeMap(&inner, "    ", "fields", a.Fields)
	if inner.Len() > 0 {
		fmt.Fprintf(b, "  %s:\n", name)
		b.Write(inner.Bytes())
	}
}

// writeMap writes a mapping of texts, sorted by its keys.
func writeMap(b *bytes.Buffer, indent, name string, m map[string]string) {
	if len(m) == 0 {
		return
	}
	fmt.Fprintf(b, "%s%s:\n", indent, scalar(name))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		fmt.Fprintf(b, "%s  %s: %s\n", indent, scalar(key), scalar(m[key]))
	}
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
	quoted := strconv.QuoteToGraphic(s)
	if blockText(quoted) >= 0 {
		// the reader would take its end for the beginning of a text of several lines
		quoted = strings.NewReplacer("|", `\x7c`, ">", `\x3e`).Replace(quoted)
	}
	return quoted
}
