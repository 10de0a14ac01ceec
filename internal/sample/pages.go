package sample

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"fmt"
	"net/http"
	"time"
)

// A webPage is for people. It is answered to anybody, outside both surfaces, and built into the program: it needs no
// network but this server.
type webPage struct {
	path string
	kind string // its Content-Type
	file string // in pageFiles
}

// pageTable is every page there is. Pages name each other by relative addresses, so that a proxy may serve them under a
// prefix.
var pageTable = []webPage{
	{"/demo", "text/html; charset=utf-8", "demo/index.html"},
	{"/demo/demo.css", "text/css; charset=utf-8", "demo/demo.css"},
	{"/demo/demo.js", "text/javascript; charset=utf-8", "demo/demo.js"},
	{"/demo/icon.svg", "image/svg+xml", "demo/icon.svg"},
}

//go:embed demo
var pageFiles embed.FS

const pageMethods = "GET, HEAD, OPTIONS"

// pagePolicy lets a page load its own script and style and talk to its own server, and nothing else: no inline script, no
// other host, no frame around it. Text from the API that a script would turn into markup is refused by the browser.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"

// findPage returns the page at a path, nil where there is none.
func findPage(path string) *webPage {
	for i := range pageTable {
		if pageTable[i].path == path {
			return &pageTable[i]
		}
	}
	return nil
}

// page answers a page. A browser asks each time whether it still has the newest, since a new weir brings new ones.
func (r *request) page(p *webPage) error {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
	case http.MethodOptions:
		r.w.Header().Set("Allow", pageMethods)
		return r.empty()
	default:
		r.w.Header().Set("Allow", pageMethods)
		return refuse(http.StatusMethodNotAllowed, "method %s is not allowed here: allowed are %s", show(r.Method), pageMethods)
	}
	body, err := pageFiles.ReadFile(p.file)
	if err != nil {
		return err
	}
	h := r.w.Header()
	h.Set("Content-Type", p.kind)
	h.Set("Cache-Control", "no-cache")
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("ETag", fmt.Sprintf(`"%x"`, sha256.Sum256(body)))
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	http.ServeContent(r.w, r.Request, "", time.Time{}, bytes.NewReader(body))
	return nil
}
