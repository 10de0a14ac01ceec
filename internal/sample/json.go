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

// This file parses JSON more strictly than encoding/json, which ignores the case of names, keeps
// the last of duplicate fields, and replaces invalid text by U+FFFD. grammar lets encoding/json
// check the syntax of the whole body once. The functions below rely on that.

const (
	maxFields = 64 // of one object
	maxNested = 16 // levels of an object without a fixed schema
)

// grammar returns an error for a body that is not one JSON value in UTF-8.
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

// kind describes the type of a value, for messages.
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

// members returns the fields of an object. It refuses duplicate names and too many fields.
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
		if len(fields) == maxFields {
			return nil, fmt.Errorf("an object has more than %d fields", maxFields)
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

// elements returns up to limit elements of a list.
func elements(list json.RawMessage, limit int) []json.RawMessage {
	all := []json.RawMessage{}
	i := blank(list, blank(list, 0)+1)
	for list[i] != ']' && len(all) < limit {
		end := skip(list, i)
		all = append(all, list[i:end])
		if i = blank(list, end); list[i] == ',' {
			i = blank(list, i+1)
		}
	}
	return all
}

// checkNested checks a value without a fixed schema by the same rules at every level.
func checkNested(value json.RawMessage, depth int) error {
	if depth > maxNested {
		return fmt.Errorf("is nested more than %d levels deep", maxNested)
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
			if err := checkNested(field, depth+1); err != nil {
				return err
			}
		}
	case "a list":
		for _, element := range elements(value, len(value)) {
			if err := checkNested(element, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// blank returns the index of the first byte at or after i that is not white space.
func blank(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\r' || b[i] == '\n') {
		i++
	}
	return i
}

// skip returns the index after the value that starts at i.
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

// unquote decodes a string. It refuses an unpaired surrogate.
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

// escaped returns the value of the four digits of a \u escape.
func escaped(digits []byte) rune {
	n, _ := strconv.ParseUint(string(digits[:4]), 16, 32) // valid: grammar has checked the body
	return rune(n)
}

func compact(value json.RawMessage) json.RawMessage {
	var out bytes.Buffer
	if json.Compact(&out, value) != nil {
		return value
	}
	return out.Bytes()
}
