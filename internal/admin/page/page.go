// Package page is the operator's dashboard: one HTML document with inline styles, scripts and chart
// library, so that its first paint needs one request. Its content security policy allows exactly
// these styles and scripts, by their hashes.
//
// The page holds no secrets and no data. It asks for a token, or takes one from the fragment of its
// address (#token=…), and sends it with each request to the admin API of the same origin.
//
//	page.html  page.css  page.js   the parts of the page
//	internal/uplot                 the chart library
package page

import (
	"crypto/sha256"
	_ "embed"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/weirlimit/weir/internal/uplot"
)

//go:embed page.html
var document string

//go:embed page.css
var pageStyle string

//go:embed page.js
var pageScript string

// Handler returns a handler that answers GET and HEAD with the page for any path, and other methods
// with 405. It sets the page's content security policy. It does not check who may get the page.
func Handler() http.Handler {
	body, policy := assemble()
	tag := fmt.Sprintf(`"%x"`, sha256.Sum256(body))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "method "+strconv.Quote(r.Method)+" is not allowed here: allowed are GET and HEAD", http.StatusMethodNotAllowed)
			return
		}
		h.Set("Cache-Control", "no-cache")
		h.Set("ETag", tag)
		if strings.Contains(r.Header.Get("If-None-Match"), tag) {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Length", strconv.Itoa(len(body)))
		if r.Method == http.MethodGet {
			_, _ = w.Write(body) // the browser may be gone
		}
	})
}

// assemble replaces the placeholder comments in the document by the files. It returns the document
// and its content security policy.
func assemble() (body []byte, policy string) {
	whole := strings.NewReplacer("/* chart style */", uplot.Style, "/* page style */", pageStyle,
		"/* chart script */", uplot.Script, "/* page script */", pageScript).Replace(document)
	return []byte(whole), uplot.Policy(pageStyle, pageScript) +
		"; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
		"require-trusted-types-for 'script'; trusted-types 'none'"
}
