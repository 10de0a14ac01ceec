package policyfile

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// A field describes one field of a document type.
type field struct {
	name     string
	like     string // an example of its value
	required bool
	unless   string // it is required unless the document has this field
	index    int
}

func fieldOf(t reflect.Type, i int) field {
	tag := t.Field(i).Tag
	name, options, _ := strings.Cut(tag.Get("json"), ",")
	unless := tag.Get("unless")
	return field{name, tag.Get("like"), options == "" || unless != "", unless, i}
}

func fieldNamed(t reflect.Type, name string) (field, bool) {
	for i := range t.NumField() {
		if f := fieldOf(t, i); f.name == name {
			return f, true
		}
	}
	return field{}, false
}

func fieldNames(t reflect.Type) []string {
	names := make([]string, t.NumField())
	for i := range names {
		names[i] = fieldOf(t, i).name
	}
	return names
}

// within returns the path of a field of the value at path.
func within(path, field string) string {
	if path == "" {
		return field
	}
	return path + "." + excerpt(field)
}

// lastField returns the field that a path ends in, such as "windows[1]".
func lastField(path string) string {
	return path[strings.LastIndexByte(path, '.')+1:]
}

// exampleOf returns ", such as: field: value" for the field that a path ends in, or "" for a list
// item.
func exampleOf(path string) string {
	for _, t := range []reflect.Type{reflect.TypeFor[document](), reflect.TypeFor[limiter](), reflect.TypeFor[penalty](), reflect.TypeFor[told](), reflect.TypeFor[asked](), reflect.TypeFor[count](), reflect.TypeFor[answers](), reflect.TypeFor[unauthenticated]()} {
		if f, ok := fieldNamed(t, lastField(path)); ok {
			return fmt.Sprintf(", such as: %s: %s", f.name, f.like)
		}
	}
	return ""
}

func mappingOf(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch x := n.(type) {
	case *ast.MappingNode:
		return x.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{x}, true
	}
	return nil, false
}

// cutAtColon returns the text of a mapping of one field that has no blank after its colon. In
// braces the parser takes a text with a colon for such a mapping. It returns "" for other nodes.
func cutAtColon(n ast.Node) string {
	pairs, _ := mappingOf(n)
	if len(pairs) != 1 {
		return ""
	}
	key, value := pairs[0].Key.GetToken(), pairs[0].Value.GetToken()
	colon := pairs[0].Start
	if colon == nil || value == nil || value.Position.Line != colon.Position.Line || value.Position.Column != colon.Position.Column+1 {
		return ""
	}
	if text, ok := scalarText(pairs[0].Value); ok && text != "" && key.Type != token.DoubleQuoteType && key.Type != token.SingleQuoteType {
		return key.Value + ":" + text
	}
	return ""
}

// nodePlace returns the place where n begins.
func nodePlace(n ast.Node) place {
	switch x := n.(type) {
	case nil:
		return place{}
	case *ast.MappingNode:
		if len(x.Values) > 0 && !x.IsFlowStyle {
			return placeOf(x.Values[0].Key.GetToken())
		}
	case *ast.MappingValueNode:
		return placeOf(x.Key.GetToken())
	case *ast.StringNode:
		at := placeOf(x.Token)
		if strings.Contains(x.Token.Origin, x.Value) { // it contains no escapes
			at.text = x.Value
			if x.Token.Type != token.StringType {
				at.text = `"` + at.text
			}
		}
		return at
	}
	return placeOf(n.GetToken())
}

// scalarText returns the text of a scalar as it is in the file. It is false if n is no scalar.
func scalarText(n ast.Node) (string, bool) {
	scalar, ok := n.(ast.ScalarNode)
	if !ok {
		return "", false
	}
	t := scalar.GetToken()
	if t.Type == token.ImplicitNullType {
		return "", true
	}
	return t.Value, true
}

// kindOf returns the type of n, in words for readers who do not know YAML.
func kindOf(n ast.Node) string {
	switch n.Type() {
	case ast.StringType, ast.LiteralType:
		return "text"
	case ast.IntegerType, ast.FloatType, ast.InfinityType, ast.NanType:
		return "a number"
	case ast.BoolType:
		return "true or false"
	case ast.NullType:
		return "null"
	case ast.SequenceType:
		return "a list"
	case ast.MappingType, ast.MappingValueType:
		return "a mapping"
	}
	return strings.ToLower(n.Type().String())
}

func countLines(n int) string {
	if n == 1 {
		return "1 line has tabs"
	}
	return fmt.Sprintf("%d lines have tabs", n)
}
