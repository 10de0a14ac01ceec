// Package plaintext makes text that strangers wrote fit for a terminal.
package plaintext

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Line returns what a file's name, a log or a server says: on one line, at most so many bytes and an ellipsis, and with all that
// could move the cursor, change colours or reverse the direction of writing spelled out.
func Line(s string, most int) string {
	var b strings.Builder
	for i, r := range s {
		if b.Len() >= most {
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
