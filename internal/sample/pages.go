package sample

import (
	"crypto/sha256"
	"embed"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/weirlimit/weir/clients/js"
)

// A webPage is a page for people. It is open to all, belongs to neither surface, is embedded in the
// program, and loads nothing from other servers.
type webPage struct {
	path string
	kind string // Content-Type
	read func() ([]byte, error)
}

// pageTable lists all pages. They link to each other by relative addresses, so that a proxy may
// serve them under a prefix.
var pageTable = []webPage{
	{"/openapi.yaml", "application/yaml", func() ([]byte, error) { return description, nil }},
	{"/docs", "text/html; charset=utf-8", file("docs/docs.gen.html")},
	{"/docs/docs.css", "text/css; charset=utf-8", file("docs/docs.css")},
	{"/demo", "text/html; charset=utf-8", file("demo/index.html")},
	{"/demo/demo.css", "text/css; charset=utf-8", file("demo/demo.css")},
	{"/demo/demo.js", "text/javascript; charset=utf-8", file("demo/demo.js")},
	{"/demo/icon.svg", "image/svg+xml", file("demo/icon.svg")},
	{"/demo/tabs", "text/html; charset=utf-8", file("demo/tabs.html")},
	{"/demo/tabs.js", "text/javascript; charset=utf-8", file("demo/tabs.js")},
	{"/demo/pace/pace.js", "text/javascript; charset=utf-8", module("pace.js")},
	{"/demo/pace/budget.js", "text/javascript; charset=utf-8", module("budget.js")},
	{"/demo/pace/fields.js", "text/javascript; charset=utf-8", module("fields.js")},
	{"/demo/pace/routes.js", "text/javascript; charset=utf-8", module("routes.js")},
	{"/demo/pace/tabs.js", "text/javascript; charset=utf-8", module("tabs.js")},
	{"/demo/pace/families.js", "text/javascript; charset=utf-8", module("families.js")},
	{"/demo/pace/dialects.js", "text/javascript; charset=utf-8", module("dialects.js")},
}

//go:embed demo docs/docs.css docs/docs.gen.html
var pageFiles embed.FS

// description is the API in OpenAPI 3.1, written by hand. The tests hold the server to it.
//
//go:embed openapi.yaml
var description []byte

func file(name string) func() ([]byte, error) {
	return func() ([]byte, error) { return pageFiles.ReadFile(name) }
}

// module reads a module of the client for JavaScript, which paces a page of the demo.
func module(name string) func() ([]byte, error) {
	return func() ([]byte, error) { return js.Files.ReadFile(name) }
}

const pageMethods = "GET, HEAD, OPTIONS"

// pagePolicy lets a page load its own scripts and styles and call its own server, and nothing else:
// no inline scripts, no other hosts, no framing. Browsers with trusted types reject code that turns
// text into markup.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"

// findPage returns the page at a path, or nil for an unknown path.
func findPage(path string) *webPage {
	for i := range pageTable {
		if pageTable[i].path == path {
			return &pageTable[i]
		}
	}
	return nil
}

// page serves a page. Browsers revalidate it each time, because a new version of weir has new
// pages.
func (r *request) page(p *webPage) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return r.otherMethod()
	}
	body, err := p.read()
	if err != nil {
		return err
	}
	tag := fmt.Sprintf(`"%x"`, sha256.Sum256(body))
	h := r.w.Header()
	h.Set("Cache-Control", "no-cache")
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("ETag", tag)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	if strings.Contains(r.Header.Get("If-None-Match"), tag) {
		r.w.WriteHeader(http.StatusNotModified)
		return nil
	}
	h.Set("Content-Type", p.kind)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	r.w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		_, _ = r.w.Write(body) // an error means that the client has disconnected
	}
	return nil
}

// home is the path that a person opens first. It leads to the demo page, by a relative address
// like the links between pages.
const home = "/"

// redirectHome redirects from home to the demo page. The answer is not stored, because the server
// may have an upstream the next time.
func (r *request) redirectHome() error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return r.otherMethod()
	}
	h := r.w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Location", "demo")
	h.Set("Content-Length", "0")
	r.w.WriteHeader(http.StatusFound)
	return nil
}

// otherMethod answers what a page does not serve: the methods on OPTIONS, and otherwise a 405.
func (r *request) otherMethod() error {
	r.w.Header().Set("Allow", pageMethods)
	if r.Method == http.MethodOptions {
		return r.empty()
	}
	return refuse(http.StatusMethodNotAllowed, "method %s is not allowed here: allowed are %s", show(r.Method), pageMethods)
}
