package sample

import (
	"fmt"
	"html/template"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// A node is a place in the description. References are followed on the way to it.
type node struct {
	value any
	root  any
	named string // the name of the component that a reference led to
}

// A nodeField is a named child, in the order of the document.
type nodeField struct {
	name string
	node node
}

// at goes down by names; what is not there is missing.
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

// follow is the place itself, or what it refers to.
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

// text is a scalar as text, empty where it is missing.
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

// docsField is a row of a table: a parameter, or a field of a body under its path, like items[].id.
type docsField struct {
	Name, Where, Type string
	Required          bool
	Limits            []string
	About             template.HTML
}

// fieldsOf lists the fields of an object and of what it holds, depth first. A list of lists has no name to go by.
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
		all = fieldsOf(prefix, part) // which says everything but the value of the code
	}
	return all
}

// describe tells the type and what a value is held to.
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

// limitsOf tells every keyword that holds a value to something.
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
	pattern, isSaid := schema.at("pattern").text(), !schema.at("format").missing()
	if pattern != "" && !isSaid && !strings.Contains(pattern, `{Cc}`) { // which is said in words
		all = append(all, "pattern "+pattern)
	}
	return all
}
