package sample

import (
	"fmt"
	"html/template"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// A node is a node of the description. Its methods follow references.
type node struct {
	value any
	root  any
	named string // the name of the component that a reference led to
}

// A nodeField is a named child of a node, in the order of the document.
type nodeField struct {
	name string
	node node
}

// at returns the descendant at a path of names, or a missing node.
func (n node) at(path ...string) node {
	for _, name := range path {
		n = n.child(name)
	}
	return n
}

func (n node) child(name string) node {
	object, _ := n.value.(yaml.MapSlice)
	for _, item := range object {
		if item.Key == name {
			return n.follow(item.Value)
		}
	}
	return node{root: n.root}
}

// follow returns the node, or the node that it refers to.
func (n node) follow(value any) node {
	object, _ := value.(yaml.MapSlice)
	if len(object) != 1 || object[0].Key != "$ref" {
		return node{value: value, root: n.root}
	}
	steps := strings.Split(strings.TrimPrefix(fmt.Sprint(object[0].Value), "#/"), "/")
	found := node{value: n.root, root: n.root}.at(steps...)
	found.named = steps[len(steps)-1]
	return found
}

func (n node) missing() bool { return n.value == nil }

// text returns a scalar as text, or "" for a missing one.
func (n node) text() string {
	if n.value == nil {
		return ""
	}
	return fmt.Sprint(n.value)
}

func (n node) list() []node {
	values, _ := n.value.([]any)
	all := make([]node, len(values))
	for i, v := range values {
		all[i] = n.follow(v)
	}
	return all
}

func (n node) fields() []nodeField {
	object, _ := n.value.(yaml.MapSlice)
	all := make([]nodeField, len(object))
	for i, item := range object {
		all[i] = nodeField{fmt.Sprint(item.Key), n.follow(item.Value)}
	}
	return all
}

// docsField is a row of a table: a parameter, or a field of a body with its path, such as
// items[].id.
type docsField struct {
	Name, Where, Type string
	Required          bool
	Limits            []string
	About             template.HTML
}

// fieldsOf lists the fields of an object and of the objects in it, depth first. It skips a list of
// lists, which has no name.
func fieldsOf(prefix string, schema node) []docsField {
	var all []docsField
	required := []string{}
	for _, name := range schema.at("required").list() {
		required = append(required, name.text())
	}
	for _, p := range schema.at("properties").fields() {
		f := docsField{Name: prefix + p.name, Required: slices.Contains(required, p.name)}
		f.describe(p.node)
		f.About = line(p.node.at("description").text())
		all = append(all, f)
		inner, suffix := p.node, "."
		if items := p.node.at("items"); !items.missing() {
			inner, suffix = items, "[]."
		}
		all = append(all, fieldsOf(f.Name+suffix, inner)...)
	}
	for _, part := range schema.at("allOf").list() {
		all = fieldsOf(prefix, part) // everything except the value of the code
	}
	return all
}

// describe describes the type and the constraints of a value.
func (f *docsField) describe(schema node) {
	f.Type = typeOf(schema)
	for _, part := range schema.at("anyOf").list() {
		if len(f.Limits) == 0 {
			f.Limits = limitsOf(part)
		}
	}
	f.Limits = append(f.Limits, limitsOf(schema)...)
}

func typeOf(schema node) string {
	var names []string
	for _, part := range schema.at("anyOf").list() {
		names = append(names, typeOf(part))
	}
	for _, t := range schema.at("type").list() {
		names = append(names, t.text())
	}
	if len(names) > 0 {
		return strings.Join(names, " or ")
	}
	name := schema.at("type").text()
	if items := schema.at("items"); name == "array" {
		return "array of " + typeOf(items) + "s"
	}
	return name
}

// limitsOf describes every keyword that constrains a value.
func limitsOf(schema node) []string {
	var all []string
	say := func(format, keyword string) {
		if n := schema.at(keyword); !n.missing() {
			all = append(all, fmt.Sprintf(format, n.text()))
		}
	}
	say("always %s", "const")
	var values []string
	for _, v := range schema.at("enum").list() {
		values = append(values, v.text())
	}
	if len(values) > 0 {
		all = append(all, "one of "+strings.Join(values, ", "))
	}
	say("%s", "format")
	least, most := schema.at("minimum"), schema.at("maximum")
	if !least.missing() && !most.missing() {
		all = append(all, least.text()+" to "+most.text())
	} else {
		say("at least %s", "minimum")
		say("at most %s", "maximum")
	}
	say("at least %s characters", "minLength")
	say("at most %s characters", "maxLength")
	say("at least %s", "minItems")
	say("at most %s", "maxItems")
	pattern, described := schema.at("pattern").text(), !schema.at("format").missing()
	// The description has formats and patterns of control characters in words.
	if pattern != "" && !described && !strings.Contains(pattern, `{Cc}`) {
		all = append(all, "pattern "+pattern)
	}
	return all
}
