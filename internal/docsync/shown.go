package docsync

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Shown is what a file's name or a server says, for a terminal: on one line, at most so many bytes and an ellipsis, and with
// all that could move the cursor, change colours or reverse the direction of writing spelled out.
func Shown(s string, most int) string {
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
