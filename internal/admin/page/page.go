// Package page is the operator's dashboard: one HTML document with its style, its script and its chart library inside, so that
// its first paint asks for nothing else, and a content policy that lets just these run, by their hashes.
//
// The page holds no secret and knows nothing until it has a token: it asks for one, or takes it from the fragment of its address
// (#token=…), and sends it with each question to the admin API beside it.
//
//	page.html  page.css  page.js   what it is
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

// Handler answers GET and HEAD with the page, whatever the path, and anything else with 405. It says who may do what on the page;
// who may ask for it is for its caller to decide.
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
			_, _ = w.Write(body) // the browser has left, or it has the page
		}
	})
}

// assemble puts the files where the document has comments for them, and returns it with the policy under which nothing else runs.
func assemble() (body []byte, policy string) {
	whole := strings.NewReplacer("/* chart style */", uplot.Style, "/* page style */", pageStyle,
		"/* chart script */", uplot.Script, "/* page script */", pageScript).Replace(document)
	return []byte(whole), uplot.Policy(pageStyle, pageScript) +
		"; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
		"require-trusted-types-for 'script'; trusted-types 'none'"
}
