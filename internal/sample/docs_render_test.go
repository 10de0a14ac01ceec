package sample

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"html/template"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// docsSource is the page that docsPage fills in.
//
//go:embed docs/docs.html
var docsSource string

var updateDocs = flag.Bool("update-docs", false, "write docs/docs.gen.html")

// The page is made here and not by the server, which then needs no templates and parses no YAML for
// it.
func TestThePageOfTheDocsIsMadeOfTheDescription(t *testing.T) {
	page, err := docsPage()
	if err != nil {
		t.Fatal(err)
	}
	const path = "docs/docs.gen.html"
	if *updateDocs {
		if err := os.WriteFile(path, page, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if kept, err := os.ReadFile(path); err != nil || !bytes.Equal(kept, page) {
		t.Errorf("%s is not what openapi.yaml and docs/docs.html make (%v): go test ./internal/sample -run PageOfTheDocs -update-docs", path, err)
	}
}

// docsPage renders the description as HTML: every endpoint with its fields, its answers and its
// limits.
func docsPage() ([]byte, error) {
	var root any
	if err := yaml.UnmarshalWithOptions(description, &root, yaml.UseOrderedMap()); err != nil {
		return nil, fmt.Errorf("read openapi.yaml: %w", err)
	}
	parsed, err := template.New("docs").Parse(docsSource)
	if err != nil {
		return nil, err
	}
	var page bytes.Buffer
	if err := parsed.Execute(&page, newDocs(node{value: root, root: root})); err != nil {
		return nil, fmt.Errorf("write /docs: %w", err)
	}
	return page.Bytes(), nil
}

// docs is the data of the page's template.
type docs struct {
	Title, Summary     string
	Intro, Limits, Not template.HTML
	Limiters           []docsLimiter
	Groups             []docsGroup
	Errors             []docsResponse
}

// docsLimiter is a row of the table of limits: a limiter and the operations that share its budget.
type docsLimiter struct {
	Name       string
	Windows    []string
	Operations []*docsOperation
}

type docsGroup struct {
	ID, Name   string
	About      template.HTML
	Operations []*docsOperation
}

type docsOperation struct {
	ID, Method, Path, Summary string
	About                     template.HTML
	Credential                string // empty for an operation without a credential
	Limiter                   string
	Windows                   []string
	Parameters                []docsField
	Body                      *docsBody
	Curl                      string
	Answers                   []docsResponse // below 400
	Errors                    []docsResponse
}

type docsBody struct {
	Required bool
	Most     string
	About    template.HTML
	Fields   []docsField
}

type docsResponse struct {
	Status, ID string
	About      template.HTML
	Contents   []docsContent
}

type docsContent struct {
	Media   string
	Fields  []docsField
	Example string
}

func newDocs(root node) *docs {
	info := root.at("info")
	d := &docs{
		Title:   info.at("title").text(),
		Summary: info.at("summary").text(),
		Intro:   prose(info.at("description").text()),
		Limits:  prose(info.at("x-weir-limits").text()),
		Not:     prose(info.at("x-weir-other").text()),
	}
	groups := map[string]int{}
	for _, tag := range root.at("tags").list() {
		name := tag.at("name").text()
		groups[name] = len(d.Groups)
		d.Groups = append(d.Groups, docsGroup{ID: strings.ToLower(name), Name: name, About: prose(tag.at("description").text())})
	}
	for _, path := range root.at("paths").fields() {
		for _, method := range path.node.fields() {
			if method.name == "parameters" {
				continue
			}
			o := newOperation(path.name, strings.ToUpper(method.name), path.node, method.node)
			g := &d.Groups[groups[method.node.at("tags").list()[0].text()]]
			g.Operations = append(g.Operations, o)
			d.count(o)
		}
	}
	for _, r := range root.at("components", "responses").fields() {
		if example := r.node.at("content", "application/json", "example", "error"); !example.missing() {
			d.Errors = append(d.Errors, newResponse("", r.name, r.node))
		}
	}
	return d
}

// count adds the operation to its limiter.
func (d *docs) count(o *docsOperation) {
	if o.Limiter == "" {
		return
	}
	for i := range d.Limiters {
		if l := &d.Limiters[i]; l.Name == o.Limiter {
			l.Operations = append(l.Operations, o)
			return
		}
	}
	d.Limiters = append(d.Limiters, docsLimiter{o.Limiter, o.Windows, []*docsOperation{o}})
}

func newOperation(path, method string, item, n node) *docsOperation {
	o := &docsOperation{
		ID:      n.at("operationId").text(),
		Method:  method,
		Path:    path,
		Summary: n.at("summary").text(),
		About:   prose(n.at("description").text()),
		Limiter: n.at("x-weir-limiter", "name").text(),
	}
	for _, w := range n.at("x-weir-limiter", "windows").list() {
		o.Windows = append(o.Windows, w.text())
	}
	for _, requirement := range n.at("security").list() {
		for _, scheme := range requirement.fields() {
			o.Credential = scheme.name
		}
	}
	parameters := append(item.at("parameters").list(), n.at("parameters").list()...)
	for _, p := range parameters {
		f := docsField{Name: p.at("name").text(), Where: p.at("in").text(), Required: p.at("required").text() == "true"}
		f.describe(p.at("schema"))
		f.About = line(p.at("description").text())
		o.Parameters = append(o.Parameters, f)
	}
	if body := n.at("requestBody"); !body.missing() {
		most, _ := strconv.Atoi(body.at("x-weir-max-bytes").text())
		schema := body.at("content", "application/json", "schema")
		o.Body = &docsBody{
			Required: body.at("required").text() == "true",
			Most:     size(most),
			About:    prose(schema.at("description").text()),
			Fields:   fieldsOf("", schema),
		}
	}
	o.Curl = curl(o, parameters, n.at("requestBody", "content", "application/json", "example"))
	for _, r := range n.at("responses").fields() {
		response := newResponse(r.name, r.node.named, r.node)
		if r.name < "400" {
			o.Answers = append(o.Answers, response)
		} else {
			o.Errors = append(o.Errors, response)
		}
	}
	return o
}

// statusOf returns the status of a shared response, by its error code.
func statusOf(code string) string {
	for status, c := range codes {
		if c == code {
			return strconv.Itoa(status)
		}
	}
	return "429" // which only the limiter answers
}

func newResponse(status, id string, n node) docsResponse {
	r := docsResponse{Status: status, ID: id, About: prose(n.at("description").text())}
	for _, c := range n.at("content").fields() {
		content := docsContent{Media: c.name, Fields: fieldsOf("", c.node.at("schema"))}
		switch example := c.node.at("example"); {
		case example.missing():
		case c.name == "application/json":
			content.Example = example.json("  ")
		default:
			content.Example = example.text()
		}
		if r.Status == "" {
			r.Status = statusOf(c.node.at("example", "error", "code").text())
		}
		r.Contents = append(r.Contents, content)
	}
	return r
}

// size formats a number of bytes for people.
func size(bytes int) string {
	if bytes >= 1<<20 {
		return fmt.Sprintf("%d MiB", bytes>>20)
	}
	return fmt.Sprintf("%d KiB", bytes>>10)
}

// curl returns a command line that sends the operation's example.
func curl(o *docsOperation, parameters []node, body node) string {
	path, query := o.Path, []string{}
	var headers []string
	for _, p := range parameters {
		example, name := p.at("example").text(), p.at("name").text()
		switch in := p.at("in").text(); {
		case example == "":
		case in == "path":
			path = strings.ReplaceAll(path, "{"+name+"}", example)
		case in == "query" && body.missing():
			query = append(query, name+"="+example)
		}
	}
	if len(query) > 0 {
		path += "?" + strings.Join(query, "&")
	}
	if o.Credential != "" {
		headers = append(headers, `-H "Authorization: Bearer $`+strings.ToUpper(o.Credential)+`"`)
	}
	if !body.missing() {
		headers = append(headers, `-H 'Content-Type: application/json'`, `-d '`+strings.ReplaceAll(body.json(""), `'`, `'\''`)+`'`)
	}
	command := "curl "
	if o.Method == "PUT" || o.Method == "DELETE" {
		command += "-X " + o.Method + " "
	}
	return strings.Join(append([]string{command + "'http://localhost:8080" + path + "'"}, headers...), " \\\n  ")
}

// json writes the value as JSON in the order of the document, indented if indent is set.
func (n node) json(indent string) string {
	var b bytes.Buffer
	n.write(&b)
	if indent == "" {
		return b.String()
	}
	var pretty bytes.Buffer
	if json.Indent(&pretty, b.Bytes(), "", indent) != nil {
		return b.String()
	}
	return pretty.String()
}

func (n node) write(b *bytes.Buffer) {
	switch v := n.value.(type) {
	case yaml.MapSlice:
		for i, f := range n.fields() {
			b.WriteString([]string{"{", ","}[min(i, 1)] + strconv.Quote(f.name) + ":")
			f.node.write(b)
		}
		b.WriteString([]string{"{}", "}"}[min(len(v), 1)])
	case []any:
		b.WriteByte('[')
		for i, element := range n.list() {
			if i > 0 {
				b.WriteByte(',')
			}
			element.write(b)
		}
		b.WriteByte(']')
	default:
		e := json.NewEncoder(b)
		e.SetEscapeHTML(false)
		_ = e.Encode(v) // scalars always encode
		b.Truncate(b.Len() - 1)
	}
}
