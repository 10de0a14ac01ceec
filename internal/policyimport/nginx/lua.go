package nginx

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
)

// open opens a file of a configuration, without the code of its Lua blocks.
func open(path string) (io.ReadCloser, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	line, directive := blankLua(text)
	if directive != "" {
		return nil, fmt.Errorf(`%s:%d: the Lua code of %s has no end: expected "}"`, path, line, directive)
	}
	return io.NopCloser(bytes.NewReader(text)), nil
}

// blankLua makes blanks of the code in *_by_lua_block directives, which has its own strings and
// comments, and keeps the line breaks. It returns the first directive whose code does not end, with
// its line; empty: all end.
func blankLua(text []byte) (line int, directive string) {
	lua := "" // the directive whose block comes next
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == '#':
			i = after(text, i, "\n")
		case c == '"' || c == '\'':
			i = afterQuote(text, i)
		case c == '{' && lua != "":
			end := luaEnd(text, i+1)
			if end < 0 {
				return 1 + bytes.Count(text[:i], []byte("\n")), lua
			}
			for j := i + 1; j < end; j++ {
				if text[j] != '\n' {
					text[j] = ' '
				}
			}
			i, lua = end+1, ""
		case strings.IndexByte("{};", c) >= 0:
			i, lua = i+1, ""
		case strings.IndexByte(" \t\r\n", c) >= 0:
			i++
		default:
			end := wordEnd(text, i)
			if word := string(text[i:end]); strings.HasSuffix(word, "_by_lua_block") {
				lua = word
			}
			i = end
		}
	}
	return 0, ""
}

// wordEnd returns the end of the word at i. The braces of ${name} are part of it.
func wordEnd(text []byte, i int) int {
	for ; i < len(text) && strings.IndexByte(" \t\r\n{};", text[i]) < 0; i++ {
		switch {
		case text[i] == '\\':
			i++
		case text[i] == '$' && i+1 < len(text) && text[i+1] == '{':
			i = after(text, i, "}") - 1
		}
	}
	return min(i, len(text))
}

// luaEnd returns the place of the brace that ends Lua code which begins at i; below 0: none does.
func luaEnd(text []byte, i int) int {
	for depth := 0; i < len(text); {
		switch c := text[i]; {
		case c == '"' || c == '\'':
			i = afterQuote(text, i)
		case c == '-' && bytes.HasPrefix(text[i:], []byte("--")):
			if end := longBracket(text, i+2); end > 0 {
				i = end
			} else {
				i = after(text, i, "\n")
			}
		case c == '[':
			i = max(i+1, longBracket(text, i))
		case c == '}' && depth == 0:
			return i
		case c == '}':
			depth--
			i++
		case c == '{':
			depth++
			i++
		default:
			i++
		}
	}
	return -1
}

// longBracket returns the end of a long bracket of Lua, such as [[…]] or [=[…]=], at i; 0: none
// begins there.
func longBracket(text []byte, i int) int {
	rest, ok := bytes.CutPrefix(text[i:], []byte("["))
	level := len(rest) - len(bytes.TrimLeft(rest, "="))
	if !ok || !bytes.HasPrefix(rest[level:], []byte("[")) {
		return 0
	}
	return after(text, i+level+2, "]"+strings.Repeat("=", level)+"]")
}

// afterQuote returns the end of a text in quotes at i.
func afterQuote(text []byte, i int) int {
	quote := text[i]
	for i++; i < len(text) && text[i] != quote; i++ {
		if text[i] == '\\' {
			i++
		}
	}
	return min(i+1, len(text))
}

// after returns the place after the next end from i on, or the end of the text.
func after(text []byte, i int, end string) int {
	if n := bytes.Index(text[i:], []byte(end)); n >= 0 {
		return i + n + len(end)
	}
	return len(text)
}
