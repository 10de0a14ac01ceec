// Package openapitest holds a server to its OpenAPI 3.1 document, for tests: every exchange that a test makes is checked
// against what the document says of it. kin-openapi reads the document, judges it and finds the operation of a request;
// the schemas are compiled once, as the JSON Schema 2020-12 that OpenAPI 3.1 says they are.
package openapitest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/google/jsonschema-go/jsonschema"
)

// A Document is an OpenAPI document that exchanges are checked against. It is safe for concurrent use.
type Document struct {
	Spec *openapi3.T

	router  routers.Router
	schemas map[*openapi3.Schema]*jsonschema.Resolved // of every body, parameter and header
	unsaid  []string                                  // response headers that need not be there
}

// Read reads a document and judges it. The error says what is wrong with it, examples that do not match their schemas
// included.
func Read(yaml []byte) (*Document, error) {
	spec, err := openapi3.NewLoader().LoadFromData(yaml)
	if err != nil {
		return nil, fmt.Errorf("read OpenAPI document: %w", err)
	}
	if !spec.IsOpenAPI31OrLater() {
		return nil, fmt.Errorf("read OpenAPI document: version %s: want 3.1", spec.OpenAPI)
	}
	if err := spec.Validate(context.Background()); err != nil {
		return nil, fmt.Errorf("validate OpenAPI document: %w", err)
	}
	d := &Document{Spec: spec, schemas: map[*openapi3.Schema]*jsonschema.Resolved{}}
	anywhere := *spec
	anywhere.Servers = nil // the tests know theirs
	if d.router, err = gorillamux.NewRouter(&anywhere); err != nil {
		return nil, fmt.Errorf("route OpenAPI document: %w", err)
	}
	if err := d.compile(); err != nil {
		return nil, fmt.Errorf("validate OpenAPI document: %w", err)
	}
	return d, nil
}

// Without returns the document of a server that stands alone, without what adds the named response headers.
func (d *Document) Without(headers ...string) *Document {
	bare := *d
	bare.unsaid = headers
	return &bare
}

// compile makes validators of all the schemas that values are checked against, and checks the examples beside them.
func (d *Document) compile() error {
	definitions, err := d.definitions()
	if err != nil {
		return err
	}
	var all []error
	for _, p := range d.places() {
		if p.schema == nil {
			all = append(all, fmt.Errorf("%s: there is no schema", p.name))
			continue
		}
		resolved, err := resolve(p.schema, definitions)
		if err != nil {
			all = append(all, fmt.Errorf("%s: %w", p.name, err))
			continue
		}
		d.schemas[p.schema.Value] = resolved
		for _, example := range p.examples {
			if err := validate(resolved, example); err != nil {
				all = append(all, fmt.Errorf("%s: the example: %w", p.name, err))
			}
		}
	}
	return errors.Join(all...)
}

// A place is where the document says by a schema what may stand there.
type place struct {
	name     string
	schema   *openapi3.SchemaRef
	examples []any
}

// places returns every body, parameter and header of every operation.
func (d *Document) places() []place {
	var all []place
	content := func(name string, c openapi3.Content) {
		for media, m := range c {
			p := place{name: name + " " + media, schema: m.Schema}
			if m.Example != nil {
				p.examples = append(p.examples, m.Example)
			}
			all = append(all, p)
		}
	}
	for path, item := range d.Spec.Paths.Map() {
		for method, operation := range item.Operations() {
			name := method + " " + path
			for _, p := range parameters(item, operation) {
				found := place{name: name + " " + p.Name, schema: p.Schema}
				if p.Example != nil {
					found.examples = append(found.examples, p.Example)
				}
				all = append(all, found)
			}
			if operation.RequestBody != nil {
				content(name, operation.RequestBody.Value.Content)
			}
			for status, response := range operation.Responses.Map() {
				content(name+" "+status, response.Value.Content)
				for header, h := range response.Value.Headers {
					all = append(all, place{name + " " + status + " " + header, h.Value.Schema, []any{h.Value.Example}})
				}
			}
		}
	}
	return all
}

// parameters returns those of the path and of the operation itself.
func parameters(item *openapi3.PathItem, operation *openapi3.Operation) []*openapi3.Parameter {
	var all []*openapi3.Parameter
	for _, list := range []openapi3.Parameters{item.Parameters, operation.Parameters} {
		for _, p := range list {
			all = append(all, p.Value)
		}
	}
	return all
}

// definitions returns the document's named schemas as JSON Schema has them.
func (d *Document) definitions() (map[string]json.RawMessage, error) {
	all := map[string]json.RawMessage{}
	for name, schema := range d.Spec.Components.Schemas {
		text, err := local(schema)
		if err != nil {
			return nil, fmt.Errorf("schema %s: %w", name, err)
		}
		all[name] = text
	}
	return all, nil
}

const (
	components  = `"#/components/schemas/`
	definitions = `"#/$defs/`
)

// local writes a schema with its references to where resolve puts what they name.
func local(schema *openapi3.SchemaRef) (json.RawMessage, error) {
	text, err := json.Marshal(schema)
	return json.RawMessage(strings.ReplaceAll(string(text), components, definitions)), err
}

func resolve(ref *openapi3.SchemaRef, named map[string]json.RawMessage) (*jsonschema.Resolved, error) {
	text, err := local(ref)
	if err != nil {
		return nil, err
	}
	whole := map[string]json.RawMessage{}
	if err := json.Unmarshal(text, &whole); err != nil {
		return nil, err
	}
	needed := map[string]json.RawMessage{}
	gather(text, named, needed)
	if whole["$defs"], err = json.Marshal(needed); err != nil {
		return nil, err
	}
	if text, err = json.Marshal(whole); err != nil {
		return nil, err
	}
	var schema jsonschema.Schema
	if err := json.Unmarshal(text, &schema); err != nil {
		return nil, err
	}
	return schema.Resolve(nil)
}

// gather adds to needed what text refers to, and what that refers to.
func gather(text json.RawMessage, named, needed map[string]json.RawMessage) {
	for _, after := range strings.Split(string(text), definitions)[1:] {
		name, _, _ := strings.Cut(after, `"`)
		if _, done := needed[name]; !done {
			needed[name] = named[name]
			gather(named[name], named, needed)
		}
	}
}

// validate checks a value as JSON has it, whatever it is made of.
func validate(schema *jsonschema.Resolved, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	var plain any
	if err := json.Unmarshal(text, &plain); err != nil {
		return err
	}
	return schema.Validate(plain)
}

// Operation returns the operation that a request asks for, HEAD as GET; nil where the document has none.
func (d *Document) Operation(r *http.Request) *routers.Route {
	route, _ := d.find(r)
	return route
}

func (d *Document) find(r *http.Request) (*routers.Route, map[string]string) {
	asked := *r
	if r.Method == http.MethodHead {
		asked.Method = http.MethodGet
	}
	route, parameters, err := d.router.FindRoute(&asked)
	if err != nil {
		return nil, nil
	}
	return route, parameters
}
