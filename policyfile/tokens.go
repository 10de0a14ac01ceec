package policyfile

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/goccy/go-yaml/scanner"
	"github.com/goccy/go-yaml/token"
)

// scanTokens runs the scanner up to its first error, and checks the tokens before they are parsed.
func (d *reading) scanTokens(text string) (token.Tokens, bool) {
	var s scanner.Scanner
	s.Init(text)
	var tokens token.Tokens
	for {
		some, err := s.Scan()
		tokens.Add(some...)
		if errors.Is(err, io.EOF) {
			break
		}
		if invalid := tokens.InvalidToken(); invalid != nil {
			d.syntax(invalid, invalid.Error)
			return nil, false
		}
		if err != nil {
			d.report(place{}, "", "", "", "not YAML: %v", err)
			return nil, false
		}
	}
	return tokens, d.checkTokens(tokens)
}

// checkTokens rejects the parts of YAML that a policy file does not use, and shapes that are too
// expensive to parse.
func (d *reading) checkTokens(tokens token.Tokens) bool {
	var shape shape
	refused, headers, seen := 0, 0, false
	for i, t := range tokens {
		switch t.Type {
		case token.CommentType:
			continue
		case token.DocumentHeaderType, token.DocumentEndType:
			if headers++; seen || headers > 1 || t.Type == token.DocumentEndType {
				d.report(placeOf(t), "", t.Value, "put one document in a file", "%q begins another document: a policy file is one document", t.Value)
				return false
			}
			continue
		case token.DirectiveType, token.MappingKeyType:
			d.report(placeOf(t), "", t.Value, "remove it", "%q: policy files have no YAML directives or complex keys", t.Value)
			return false
		case token.AnchorType, token.AliasType, token.TagType, token.MergeKeyType:
			refused++
			d.unsupported(t)
		}
		seen = true
		if wrong := shape.add(tokens, i); wrong != "" {
			d.report(placeOf(t), "", "", "a policy is a list of limiters, each with a list of routes and a list of windows", "%s", wrong)
			return false
		}
	}
	return refused <= MaxProblems
}

// unsupported reports that policy files have no anchors, aliases, merge keys or tags.
func (d *reading) unsupported(t *token.Token) {
	switch t.Type {
	case token.AnchorType:
		d.report(placeOf(t), "", "&"+following(t), "write the value in full in each place", "%q is an anchor: policy files have no anchors", "&"+following(t))
	case token.AliasType:
		hint := "write the value in full; a route is /path, or /path* for every path that begins with /path, so /* is every path"
		if name := following(t); strings.HasPrefix(name, ".") && strings.Contains(name, "/") {
			hint = fmt.Sprintf("put a route that begins with a star in quotes: %q", "*"+name)
		}
		d.report(placeOf(t), "", "*"+following(t), hint,
			"%q is an alias: policy files have no aliases", "*"+following(t))
	case token.MergeKeyType:
		d.report(placeOf(t), "", "<<", "write the fields in full", "\"<<\" is a merge key: policy files have no merge keys")
	default:
		d.report(placeOf(t), "", t.Value, "remove it; put text that looks like another type in quotes", "%q is a tag: policy files have no tags", t.Value)
	}
}

func following(t *token.Token) string {
	if t.Next == nil || t.Next.Type != token.StringType {
		return ""
	}
	return excerpt(t.Next.Value)
}

// syntax reports a YAML error at t.
func (d *reading) syntax(t *token.Token, message string) {
	hint := syntaxHint(message)
	if opensBrace(t) || opensBrace(t.Prev) || opensBrace(t.Next) {
		hint = "in brackets, put a route with a parameter in quotes: [\"GET /t/{tenant}/items\"]; on a line of its own that begins with \"- \", it needs none"
	}
	d.report(placeOf(t), "", "", hint, "not YAML: %s", message)
}

// opensBrace reports whether t, which may be nil, is a brace that follows a path.
func opensBrace(t *token.Token) bool {
	return t != nil && t.Type == token.MappingStartType && t.Prev != nil && strings.HasSuffix(t.Prev.Value, "/")
}

// syntaxHint returns advice on the usual cause of a YAML error, in terms of a policy.
func syntaxHint(message string) string {
	switch {
	case strings.Contains(message, "could not find end character"):
		return "close the quotes on the same line"
	case strings.Contains(message, "end token"), strings.Contains(message, "must be specified"):
		return "a list in brackets is [one, two]: close the bracket, put commas between items, and quote items that contain brackets or commas"
	case strings.Contains(message, "'@' is a reserved character"):
		return "put the name of a file of networks in quotes: \"@office.txt\""
	case strings.Contains(message, "reserved character"):
		return "put the text in quotes"
	case strings.Contains(message, "not allowed in this context"):
		return "begin all fields of a limiter in the same column, and all items of a list too"
	case strings.Contains(message, "map key"), strings.Contains(message, "non-map value"), strings.Contains(message, "key name"):
		return "a field is written \"name: value\", with a space after the colon, and the fields of a limiter begin in the same column"
	}
	return "'weir policy show' prints a valid policy to compare with"
}

func placeOf(t *token.Token) place {
	if t == nil || t.Position == nil {
		return place{}
	}
	return place{t.Position.Line, max(t.Position.Column, 1), ""}
}

// A shape tracks the nesting of a document, token by token.
type shape struct {
	brackets int                // number of open brackets
	inside   [maxNested + 1]int // number of fields so far in each open bracket
	// number of fields so far of the mapping in each column, outside brackets
	fields [maxIndent + 1]int
}

// add processes the next token. It returns what is wrong with the nesting, or "".
func (s *shape) add(tokens token.Tokens, i int) string {
	t := tokens[i]
	switch t.Type {
	case token.SequenceStartType, token.MappingStartType:
		if s.brackets++; s.brackets > maxNested {
			return "nested too deeply"
		}
		s.inside[s.brackets] = 0
	case token.SequenceEndType, token.MappingEndType:
		s.brackets = max(s.brackets-1, 0)
	case token.SequenceEntryType:
		return s.begin(t.Position.Column, 0)
	case token.MappingValueType:
		if i > 0 {
			t = tokens[i-1]
		}
		return s.begin(t.Position.Column, 1)
	}
	return ""
}

// begin processes a list item (fields is 0) or a field (fields is 1) that begins in a column.
func (s *shape) begin(column, fields int) string {
	if s.brackets > 0 {
		if fields == 0 {
			return "a dash in brackets: items in brackets are separated by commas"
		}
		if s.inside[s.brackets] += fields; s.inside[s.brackets] > maxFields {
			return "too many fields"
		}
		return ""
	}
	if column > maxIndent {
		return "nested too deeply"
	}
	column = max(column, 0) // the scanner may compute a wrong column for a text of several lines
	clear(s.fields[column+1:])
	if s.fields[column] += fields; s.fields[column] > maxFields {
		return "too many fields"
	}
	return ""
}
