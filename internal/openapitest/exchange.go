package openapitest

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/routers"
)

// An Exchange is a request and its response.
type Exchange struct {
	Request *http.Request // its Body is not read
	Sent    []byte        // the request's body
	Status  int
	Header  http.Header
	Body    []byte
	Unread  bool // the body was not read to its end, as for a stream
}

// Check returns everything that is not as documented: a status, content type, body or header that
// the operation does not have, and a success that the document does not allow for the request. A
// request without an operation must fail, except for OPTIONS, with an error of the documented
// shape.
func (d *Document) Check(x Exchange) error {
	route, parameters := d.find(x.Request)
	if route == nil {
		return x.name(d.checkElsewhere(x))
	}
	response := route.Operation.Responses.Status(x.Status)
	if response == nil {
		return x.name(fmt.Errorf("the status is not documented"))
	}
	all := []error{d.checkHeaders(x, response.Value), d.checkBody(x, response.Value)}
	if ok := x.Status >= 200 && x.Status < 300; ok {
		if err := d.expected(x.Request, x.Sent, route, parameters); err != nil {
			all = append(all, fmt.Errorf("it succeeds, and the document does not say that it may: %w", err))
		}
	}
	return x.name(errors.Join(all...))
}

func (x Exchange) name(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s %s: answered %d %s: %w", x.Request.Method, x.Request.URL, brief(x.Sent), x.Status, brief(x.Body), err)
}

func brief(body []byte) string {
	const maxShown = 300
	if len(body) > maxShown {
		return strconv.Quote(string(body[:maxShown])) + "…"
	}
	return strconv.Quote(string(body))
}

// elsewhere are the statuses for requests without an operation.
var elsewhere = []int{
	http.StatusBadRequest, http.StatusUnauthorized, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusTooManyRequests,
	http.StatusServiceUnavailable,
}

func (d *Document) checkElsewhere(x Exchange) error {
	if x.Status == http.StatusNoContent && x.Request.Method == http.MethodOptions {
		return nil
	}
	if !slices.Contains(elsewhere, x.Status) {
		return fmt.Errorf("there is no such operation, and the status is none of %v", elsewhere)
	}
	if x.Status == http.StatusMethodNotAllowed && x.Header.Get("Allow") == "" {
		return errors.New("there is no Allow")
	}
	if (x.Status == http.StatusTooManyRequests) != (x.Header.Get("Retry-After") != "") {
		return fmt.Errorf("Retry-After is %q", x.Header.Get("Retry-After"))
	}
	if x.Request.Method == http.MethodHead || x.Unread {
		return nil
	}
	if media := x.Header.Get("Content-Type"); media != "application/json" {
		return fmt.Errorf("the error's Content-Type is %q", media)
	}
	var e struct {
		Error struct{ Code, Message string }
	}
	if err := json.Unmarshal(x.Body, &e); err != nil || e.Error.Code == "" || e.Error.Message == "" {
		return errors.New("the error is not of the shape that errors have")
	}
	return nil
}

// onlyOn429 is a header that the contract reserves for 429.
const onlyOn429 = "Retry-After"

func (d *Document) checkHeaders(x Exchange, response *openapi3.Response) error {
	var all []error
	for name, header := range response.Headers {
		values := valuesOf(x.Header, name)
		switch {
		case len(values) == 0 && slices.Contains(d.optional, name):
			continue
		case len(values) != 1:
			all = append(all, fmt.Errorf("the header %s is there %d times", name, len(values)))
			continue
		}
		if err := d.schemas[header.Value.Schema.Value].Validate(scalar(values[0], header.Value.Schema.Value)); err != nil {
			all = append(all, fmt.Errorf("the header %s is %q: %w", name, values[0], err))
		}
	}
	if response.Headers[onlyOn429] == nil && len(valuesOf(x.Header, onlyOn429)) > 0 {
		all = append(all, fmt.Errorf("the header %s is there", onlyOn429))
	}
	return errors.Join(all...)
}

// valuesOf returns the lines of a header in any letter case: the contract's spelling is not Go's.
func valuesOf(h http.Header, name string) (values []string) {
	for spelled, lines := range h {
		if strings.EqualFold(spelled, name) {
			values = append(values, lines...)
		}
	}
	return values
}

// scalar parses a parameter or a header by the type of its schema.
func scalar(text string, schema *openapi3.Schema) any {
	if schema.Type.Is(openapi3.TypeInteger) {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n
		}
	}
	return text
}

func (d *Document) checkBody(x Exchange, response *openapi3.Response) error {
	if x.Request.Method == http.MethodHead {
		return nil
	}
	if len(response.Content) == 0 {
		if len(x.Body) > 0 || x.Header.Get("Content-Type") != "" {
			return errors.New("no body is documented")
		}
		return nil
	}
	media, _, err := mime.ParseMediaType(x.Header.Get("Content-Type"))
	content := response.Content[media]
	switch {
	case err != nil || content == nil:
		return fmt.Errorf("the content type %q is not documented", x.Header.Get("Content-Type"))
	case media != "application/json" || x.Unread:
		return nil
	}
	var value any
	if err := json.Unmarshal(x.Body, &value); err != nil {
		return fmt.Errorf("the body is no JSON: %w", err)
	}
	return d.schemas[content.Schema.Value].Validate(value)
}

// expected returns why the document does not allow a request to succeed, or nil. An operation
// without a 400 accepts everything.
func (d *Document) expected(r *http.Request, sent []byte, route *routers.Route, path map[string]string) error {
	if route.Operation.Responses.Status(http.StatusBadRequest) == nil {
		return nil
	}
	all := []error{d.expectedBody(r, sent, route.Operation.RequestBody)}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		all = append(all, err)
	}
	known := []string{"agent_id"} // on every request, as the document's introduction says
	for _, p := range parameters(route.PathItem, route.Operation) {
		var values []string
		switch p.In {
		case openapi3.ParameterInQuery:
			known = append(known, p.Name)
			values = query[p.Name]
		case openapi3.ParameterInHeader:
			values = r.Header.Values(p.Name)
		case openapi3.ParameterInPath:
			values = []string{path[p.Name]}
		}
		if len(values) == 0 && p.Required || len(values) > 1 && p.In == openapi3.ParameterInQuery && p.Name != "agent_id" {
			all = append(all, fmt.Errorf("the parameter %s is there %d times", p.Name, len(values)))
		}
		for _, v := range values {
			if v == "" && p.AllowEmptyValue {
				continue
			}
			if err := d.schemas[p.Schema.Value].Validate(scalar(v, p.Schema.Value)); err != nil {
				all = append(all, fmt.Errorf("the parameter %s is %q: %w", p.Name, v, err))
			}
		}
	}
	for name := range query {
		if !slices.Contains(known, name) {
			all = append(all, fmt.Errorf("there is no parameter %q", name))
		}
	}
	if needs := route.Operation.Security; needs != nil && len(*needs) > 0 && !strings.HasPrefix(strings.ToLower(r.Header.Get("Authorization")), "bearer ") {
		all = append(all, errors.New("the credential is missing"))
	}
	return errors.Join(all...)
}

// MaxBytes is the document's extension for the maximum size of a body.
const MaxBytes = "x-weir-max-bytes"

func (d *Document) expectedBody(r *http.Request, sent []byte, body *openapi3.RequestBodyRef) error {
	switch {
	case body == nil:
		return nil // it is not read
	case len(sent) == 0 && body.Value.Required:
		return errors.New("the body is missing")
	case len(sent) == 0:
		return nil
	}
	if limit, ok := body.Value.Extensions[MaxBytes].(float64); !ok || len(sent) > int(limit) {
		return fmt.Errorf("the body has %d bytes, the document says at most %v", len(sent), body.Value.Extensions[MaxBytes])
	}
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	content := body.Value.Content[media]
	if err != nil || content == nil {
		return fmt.Errorf("the body's content type %q is not documented", r.Header.Get("Content-Type"))
	}
	var value any
	if err := json.Unmarshal(sent, &value); err != nil {
		return fmt.Errorf("the body is no JSON: %w", err)
	}
	return d.schemas[content.Schema.Value].Validate(value)
}
