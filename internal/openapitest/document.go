// Package openapitest holds a server to its OpenAPI 3.1 document, for tests: it checks every
// exchange of a test against the document. kin-openapi reads and validates the document, and finds
// the operation of a request. The schemas are compiled once, as JSON Schema 2020-12, which OpenAPI
// 3.1 uses.
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

// A Document is an OpenAPI document that exchanges are checked against. It is safe for concurrent
// use.
type Document struct {
	Spec *openapi3.T

	router   routers.Router
	schemas  map[*openapi3.Schema]*jsonschema.Resolved // of every body, parameter and header
	optional []string                                  // response headers that may be missing
}

// Read reads and validates a document. Its error lists all problems, including examples that do not
// match their schemas.
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
	anywhere.Servers = nil // tests have their own
	if d.router, err = gorillamux.NewRouter(&anywhere); err != nil {
		return nil, fmt.Errorf("route OpenAPI document: %w", err)
	}
	if err := d.compile(); err != nil {
		return nil, fmt.Errorf("validate OpenAPI document: %w", err)
	}
	return d, nil
}

// Without returns the document of a bare server, in which the named response headers may be
// missing.
func (d *Document) Without(headers ...string) *Document {
	bare := *d
	bare.optional = headers
	return &bare
}

// compile compiles all schemas that values are checked against, and checks their examples.
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

// A place is a part of the document with a schema for a value.
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

// parameters returns the parameters of the path and of the operation.
func parameters(item *openapi3.PathItem, operation *openapi3.Operation) []*openapi3.Parameter {
	var all []*openapi3.Parameter
	for _, list := range []openapi3.Parameters{item.Parameters, operation.Parameters} {
		for _, p := range list {
			all = append(all, p.Value)
		}
	}
	return all
}

// definitions returns the document's named schemas in JSON Schema.
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

// local marshals a schema with references to the place where resolve puts the definitions.
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

// gather adds to needed what text refers to, recursively.
func gather(text json.RawMessage, named, needed map[string]json.RawMessage) {
	for _, after := range strings.Split(string(text), definitions)[1:] {
		name, _, _ := strings.Cut(after, `"`)
		if _, done := needed[name]; !done {
			needed[name] = named[name]
			gather(named[name], named, needed)
		}
	}
}

// validate checks a value in its JSON form.
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

// Operation returns the operation of a request, with HEAD as GET, or nil if the document has none.
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
