package sample

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// This file reads JSON more strictly than encoding/json does, which folds the case of names, lets the last duplicate
// win, and puts U+FFFD for what is no text. encoding/json still judges the grammar, once and for the whole body; the
// functions below rely on that.

const (
	mostFields = 64 // of one object
	mostNested = 16 // levels of an object that callers shape themselves
)

// grammar says what keeps body from being one JSON value.
func grammar(body []byte) error {
	if !utf8.Valid(body) {
		return errors.New("is not valid UTF-8")
	}
	if json.Valid(body) {
		return nil
	}
	var value json.RawMessage
	err := json.Unmarshal(body, &value)
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Errorf("is not valid JSON at byte %d: %v", syntax.Offset, err)
	}
	return err
}

// kind names what a value is, for a message.
func kind(value json.RawMessage) string {
	value = bytes.TrimLeft(value, " \t\r\n")
	if len(value) == 0 {
		return "nothing"
	}
	switch value[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}

// members splits an object into its fields, and refuses a name that appears twice.
func members(object json.RawMessage) (map[string]json.RawMessage, error) {
	fields := map[string]json.RawMessage{}
	i := blank(object, blank(object, 0)+1)
	for object[i] != '}' {
		end := skip(object, i)
		name, err := unquote(object[i:end])
		if err != nil {
			return nil, fmt.Errorf("a field's name %w", err)
		}
		if _, twice := fields[name]; twice {
			return nil, fmt.Errorf("field %s appears twice", show(name))
		}
		if len(fields) == mostFields {
			return nil, fmt.Errorf("an object has more than %d fields", mostFields)
		}
		i = blank(object, blank(object, end)+1) // past the colon
		end = skip(object, i)
		fields[name] = object[i:end]
		if i = blank(object, end); object[i] == ',' {
			i = blank(object, i+1)
		}
	}
	return fields, nil
}

// elements splits a list into its elements, the first most of them.
func elements(list json.RawMessage, most int) []json.RawMessage {
	all := []json.RawMessage{}
	i := blank(list, blank(list, 0)+1)
	for list[i] != ']' && len(all) < most {
		end := skip(list, i)
		all = append(all, list[i:end])
		if i = blank(list, end); list[i] == ',' {
			i = blank(list, i+1)
		}
	}
	return all
}

// sound holds a value that the caller shapes itself to the same rules, all the way down.
func sound(value json.RawMessage, depth int) error {
	if depth > mostNested {
		return fmt.Errorf("is nested more than %d levels deep", mostNested)
	}
	switch kind(value) {
	case "a string":
		_, err := unquote(value)
		return err
	case "an object":
		fields, err := members(value)
		if err != nil {
			return err
		}
		for _, field := range fields {
			if err := sound(field, depth+1); err != nil {
				return err
			}
		}
	case "a list":
		for _, element := range elements(value, len(value)) {
			if err := sound(element, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// blank returns the index of the first byte at or after i that is no white space.
func blank(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\r' || b[i] == '\n') {
		i++
	}
	return i
}

// skip returns the index behind the value that starts at i.
func skip(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			for i++; b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
			i++
		case '{', '[':
			depth++
			i++
			continue
		case '}', ']':
			depth--
			i++
		case ',', ':', ' ', '\t', '\r', '\n':
			i++
			continue
		default: // a number, true, false, null
			for i < len(b) && !bytes.ContainsRune([]byte(",:]} \t\r\n"), rune(b[i])) {
				i++
			}
		}
		if depth == 0 {
			return i
		}
	}
	return i
}

// unquote decodes a string, and refuses half of a surrogate pair.
func unquote(quoted json.RawMessage) (s string, err error) {
	if err := json.Unmarshal(quoted, &s); err != nil {
		return "", err
	}
	for i := 0; i < len(quoted); i++ {
		if quoted[i] != '\\' {
			continue
		}
		i++
		if quoted[i] != 'u' {
			continue
		}
		first := escaped(quoted[i+1:])
		i += 4
		if !utf16.IsSurrogate(first) {
			continue
		}
		if !bytes.HasPrefix(quoted[i+1:], []byte(`\u`)) || utf16.DecodeRune(first, escaped(quoted[i+3:])) == utf8.RuneError {
			return "", fmt.Errorf("has half of a surrogate pair (\\u%04x)", first)
		}
		i += 6
	}
	return s, nil
}

// escaped reads the four digits of a \u escape.
func escaped(digits []byte) rune {
	n, _ := strconv.ParseUint(string(digits[:4]), 16, 32) // the grammar holds: four digits
	return rune(n)
}

func compact(value json.RawMessage) json.RawMessage {
	var out bytes.Buffer
	if json.Compact(&out, value) != nil {
		return value
	}
	return out.Bytes()
}
