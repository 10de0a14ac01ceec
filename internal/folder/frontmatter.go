package folder

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// maxMatter is the max size of front matter, in bytes. A file with more is rejected.
const maxMatter = 16 << 10

// fields are the fields of front matter that are used; others are ignored. An empty one is not set.
type fields struct{ title, url string }

// frontMatter splits front matter from source: YAML between a first line --- and the next line that
// is --- or three dots.
func frontMatter(source []byte) (fields, []byte, error) {
	matter, rest, ok := cutMatter(source)
	if !ok {
		return fields{}, source, nil
	}
	if len(matter) > maxMatter {
		return fields{}, nil, problem("shorten it; a rule at the top of a text is written ***", "its front matter has %d bytes: at most %d are read", len(matter), maxMatter)
	}
	own, err := parseMatter(matter)
	if err != nil {
		return fields{}, nil, problem("correct the text between the lines ---; a rule at the top is written ***", "its front matter is %v", err)
	}
	return own, rest, nil
}

func cutMatter(source []byte) (matter, rest []byte, ok bool) {
	first, body, ok := bytes.Cut(source, []byte("\n"))
	if !ok || string(bytes.TrimRight(first, " \t")) != "---" {
		return nil, nil, false
	}
	for at := 0; at < len(body); {
		here, _, _ := bytes.Cut(body[at:], []byte("\n"))
		end := min(at+len(here)+1, len(body))
		if s := string(bytes.TrimRight(here, " \t")); s == "---" || s == "..." {
			return body[:at], body[end:], true
		}
		at = end
	}
	return nil, nil, false
}

// parseMatter reads the fields. The input is untrusted, so a panic of the parser is returned as an
// error.
func parseMatter(matter []byte) (own fields, err error) {
	defer func() {
		if r := recover(); r != nil {
			own, err = fields{}, fmt.Errorf("not YAML: the parser failed (%v)", r)
		}
	}()
	for _, opening := range []string{"[", "{", "- - ", "? "} { // deep nesting exhausts the parser
		if bytes.Count(matter, []byte(opening)) > 200 {
			return fields{}, fmt.Errorf("nested too deep: it has %q more than 200 times", opening)
		}
	}
	file, err := parser.ParseBytes(matter, 0, parser.AllowDuplicateMapKey())
	var syntax *yaml.SyntaxError
	switch {
	case errors.As(err, &syntax) && syntax.Token != nil && syntax.Token.Position != nil:
		return fields{}, fmt.Errorf("not YAML: line %d: %s", syntax.Token.Position.Line+1, line(syntax.Message, 200))
	case err != nil:
		return fields{}, fmt.Errorf("not YAML: %s", line(err.Error(), 200))
	case len(file.Docs) == 0 || file.Docs[0].Body == nil || file.Docs[0].Body.Type() == ast.NullType:
		return fields{}, nil
	}
	var pairs []*ast.MappingValueNode
	switch body := file.Docs[0].Body.(type) {
	case *ast.MappingNode:
		pairs = body.Values
	case *ast.MappingValueNode:
		pairs = []*ast.MappingValueNode{body}
	case *ast.CommentGroupNode:
		return fields{}, nil
	default:
		return fields{}, fmt.Errorf("not a list of fields such as \"title: Delivery\"")
	}
	for _, pair := range pairs {
		into := map[string]*string{"title": &own.title, "url": &own.url}[pair.Key.String()]
		if into == nil {
			continue
		}
		if *into, err = scalar(pair.Value); err != nil {
			return fields{}, fmt.Errorf("not right: line %d: %s %w", pair.Key.GetToken().Position.Line+1, pair.Key, err)
		}
	}
	return own, nil
}

// scalar returns a value as text, whatever its type in YAML: a title may be 2026.
func scalar(n ast.Node) (string, error) {
	switch n := n.(type) {
	case *ast.StringNode:
		return strings.TrimSpace(n.Value), nil
	case *ast.LiteralNode:
		return strings.TrimSpace(n.Value.Value), nil
	case *ast.NullNode:
		return "", nil
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, nil
	}
	return "", errors.New("is not text: write it on one line, in quotes if it has a colon or begins with a sign")
}
