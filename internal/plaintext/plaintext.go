// Package plaintext makes untrusted text safe to print on a terminal.
package plaintext

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Line returns s, such as a file's name or a line of a log, as printable text on one line. If s is
// longer than maxBytes bytes, it is cut there at a character and ends in an ellipsis. Line escapes
// characters that are not printable, which could move the cursor, change colours or reverse the
// direction of writing, and bytes that are not UTF-8.
func Line(s string, maxBytes int) string {
	var b strings.Builder
	for i, r := range s {
		if b.Len() >= maxBytes {
			b.WriteString("…")
			break
		}
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\ufffd"):
			b.WriteString(`\x` + strconv.FormatUint(uint64(s[i])|0x100, 16)[1:])
		case r == ' ' || unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		}
	}
	return b.String()
}
