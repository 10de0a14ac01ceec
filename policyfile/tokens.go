package policyfile

import (
	"errors"
	"io"
	"strings"

	"github.com/goccy/go-yaml/scanner"
	"github.com/goccy/go-yaml/token"
)

// scanTokens runs the scanner up to its first error, and looks at what may go on to the parser.
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
			d.tell(place{}, "", "", "", "not YAML: %v", err)
			return nil, false
		}
	}
	return tokens, d.checkTokens(tokens)
}

// checkTokens refuses what YAML has and a policy has not, and a shape that a parser could drown in.
func (d *reading) checkTokens(tokens token.Tokens) bool {
	var shape shape
	refused, headers, seen := 0, 0, false
	for i, t := range tokens {
		switch t.Type {
		case token.CommentType:
			continue
		case token.DocumentHeaderType, token.DocumentEndType:
			if headers++; seen || headers > 1 || t.Type == token.DocumentEndType {
				d.tell(placeOf(t), "", t.Value, "keep one document to a file", "%q begins another document: a policy is one", t.Value)
				return false
			}
			continue
		case token.DirectiveType, token.MappingKeyType:
			d.tell(placeOf(t), "", t.Value, "remove it", "%q: YAML directives and complex keys have no use in a policy", t.Value)
			return false
		case token.AnchorType, token.AliasType, token.TagType, token.MergeKeyType:
			refused++
			d.refuse(t)
		}
		seen = true
		if wrong := shape.add(tokens, i); wrong != "" {
			d.tell(placeOf(t), "", "", "a policy is a list of limiters, each with a list of routes and one of windows", "%s", wrong)
			return false
		}
	}
	return refused <= MaxProblems
}

// refuse tells that a policy has none of what t begins.
func (d *reading) refuse(t *token.Token) {
	switch t.Type {
	case token.AnchorType:
		d.tell(placeOf(t), "", "&"+following(t), "write the value out where it is needed", "%q is an anchor: a policy has none", "&"+following(t))
	case token.AliasType:
		d.tell(placeOf(t), "", "*"+following(t), "write the value out; a route is /path, or /path* for all that begin so: /* is every path",
			"%q is an alias: a policy has none", "*"+following(t))
	case token.MergeKeyType:
		d.tell(placeOf(t), "", "<<", "write the fields out", "\"<<\" is a merge key: a policy has none")
	default:
		d.tell(placeOf(t), "", t.Value, "remove it; text that looks like something else goes in quotes", "%q is a tag: a policy has none", t.Value)
	}
}

func following(t *token.Token) string {
	if t.Next == nil || t.Next.Type != token.StringType {
		return ""
	}
	return excerpt(t.Next.Value)
}

// syntax tells what a YAML parser said of t.
func (d *reading) syntax(t *token.Token, message string) {
	d.tell(placeOf(t), "", "", syntaxHint(message), "not YAML: %s", message)
}

// syntaxHint says in a policy's terms what usually makes a YAML parser say message.
func syntaxHint(message string) string {
	switch {
	case strings.Contains(message, "could not find end character"):
		return "close the quotes on the same line"
	case strings.Contains(message, "end token"), strings.Contains(message, "must be specified"):
		return "a list in brackets is [one, two]: close the bracket, put commas between items, and items that hold brackets or commas in quotes"
	case strings.Contains(message, "reserved character"):
		return "put the text in quotes"
	case strings.Contains(message, "not allowed in this context"):
		return "the fields of one limiter begin in one column, and so do the items of one list"
	case strings.Contains(message, "map key"), strings.Contains(message, "non-map value"), strings.Contains(message, "key name"):
		return "a field is written \"name: value\", with a space after the colon, and the fields of one limiter stand under each other"
	}
	return "see 'weir policy show' for a policy that is well written"
}

func placeOf(t *token.Token) place {
	if t == nil || t.Position == nil {
		return place{}
	}
	return place{t.Position.Line, max(t.Position.Column, 1), ""}
}

// A shape follows the outline of a document token by token.
type shape struct {
	brackets int                // open ones
	inside   [maxNested + 1]int // fields so far in each open bracket
	fields   [maxIndent + 1]int // fields so far of the mapping that begins in each column, outside of brackets
}

// add takes the next token and says what is wrong with the outline; empty where nothing is.
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

// begin takes a list item, or a field where fields is 1, that begins in a column.
func (s *shape) begin(column, fields int) string {
	if s.brackets > 0 {
		if fields == 0 {
			return "a dash in brackets: items in brackets have commas between them"
		}
		if s.inside[s.brackets] += fields; s.inside[s.brackets] > maxFields {
			return "too many fields"
		}
		return ""
	}
	if column > maxIndent {
		return "nested too deeply"
	}
	column = max(column, 0) // the scanner may count a text of several lines wrongly
	clear(s.fields[column+1:])
	if s.fields[column] += fields; s.fields[column] > maxFields {
		return "too many fields"
	}
	return ""
}
