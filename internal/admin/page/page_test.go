package page

import (
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/uplot"
)

func get(t *testing.T, method string, header http.Header) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(method, "/", nil)
	for name, values := range header {
		r.Header[name] = values
	}
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, r)
	return w
}

// The page is small, because an operator may have a slow connection.
func TestThePageIsSmallAndComplete(t *testing.T) {
	w := get(t, http.MethodGet, nil)
	if n := w.Body.Len(); w.Code != http.StatusOK || n < 50_000 || n > 200_000 {
		t.Errorf("GET answers %d with %d bytes, want 200 with at most 200,000", w.Code, n)
	}
	body := w.Body.String()
	for _, mark := range []string{"/* chart style */", "/* page style */", "/* chart script */", "/* page script */"} {
		if strings.Contains(body, mark) {
			t.Errorf("%s is still there: its file was not put in its place", mark)
		}
		if strings.Count(document, mark) != 1 {
			t.Errorf("page.html has %s %d times, want once", mark, strings.Count(document, mark))
		}
	}
	for _, text := range []string{uplot.Script, pageScript} {
		if strings.Contains(strings.ToLower(text), "</script") || strings.Contains(text, "<!--") {
			t.Error("a script would end its element early")
		}
	}
	for _, text := range []string{uplot.Style, pageStyle} {
		if strings.Contains(strings.ToLower(text), "</style") || strings.Contains(text, "@import") || strings.Contains(text, "url(") {
			t.Error("a style would end its element early, or asks for something")
		}
	}
}

func TestOnlyScriptsInTheContentPolicyRun(t *testing.T) {
	w := get(t, http.MethodGet, nil)
	policy, body := w.Header().Get("Content-Security-Policy"), w.Body.String()
	for _, want := range []string{"default-src 'none'", "connect-src 'self'", "img-src data:", "base-uri 'none'", "form-action 'none'",
		"frame-ancestors 'none'", "require-trusted-types-for 'script'", "trusted-types 'none'"} {
		if !strings.Contains(policy+";", want+";") {
			t.Errorf("the content policy %q lacks %s", policy, want)
		}
	}
	if strings.Contains(policy, "unsafe") || strings.Contains(policy, "*") {
		t.Errorf("the content policy %q allows more than the page's own content", policy)
	}
	blocks := regexp.MustCompile(`(?s)<(script|style)>(.*?)</(?:script|style)>`).FindAllStringSubmatch(body, -1)
	if len(blocks) != 4 {
		t.Fatalf("the page has %d blocks of script and style, want 4", len(blocks))
	}
	for _, b := range blocks {
		if hash := uplot.Hash(b[2]); !strings.Contains(policy, hash) {
			t.Errorf("a %s of %d bytes has the hash %s, which the policy does not name", b[1], len(b[2]), hash)
		}
	}
	if strings.Count(body, "<script") != 2 || strings.Count(body, "<style") != 2 {
		t.Error("there are more than four scripts and styles")
	}
	if found := regexp.MustCompile(`(?i)\s(on[a-z]+|style)\s*=`).FindString(document); found != "" {
		t.Errorf("page.html has an attribute %q, which its policy forbids", found)
	}
	if found := regexp.MustCompile(`(?i)(src|href)="([^#d]|d[^a])[^"]*"`).FindString(document); found != "" {
		t.Errorf("page.html asks for %s: everything it needs is in it", found)
	}
}

// With Trusted Types the browser rejects these, too, but only at run time.
func TestThePageNeverParsesTextAsMarkup(t *testing.T) {
	for name, script := range map[string]string{"page.js": pageScript, "uPlot": uplot.Script} {
		for _, way := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "setHTML", "DOMParser", "createContextualFragment"} {
			if strings.Contains(script, way) {
				t.Errorf("%s uses %s: what callers send would become markup", name, way)
			}
		}
	}
}

func TestThePageIsCachedByItsETag(t *testing.T) {
	first := get(t, http.MethodGet, nil)
	tag := first.Header().Get("ETag")
	if again := get(t, http.MethodGet, http.Header{"If-None-Match": {tag}}); again.Code != http.StatusNotModified || again.Body.Len() != 0 {
		t.Errorf("with its ETag it answers %d with %d bytes, want 304 and none", again.Code, again.Body.Len())
	}
	if head := get(t, http.MethodHead, nil); head.Body.Len() != 0 || head.Header().Get("Content-Length") != strconv.Itoa(first.Body.Len()) {
		t.Errorf("HEAD answers %d bytes with length %s", head.Body.Len(), head.Header().Get("Content-Length"))
	}
	if post := get(t, http.MethodPost, nil); post.Code != http.StatusMethodNotAllowed || post.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("POST answers %d, Allow %q", post.Code, post.Header().Get("Allow"))
	}
}

// WCAG 2.2, 1.4.3 (4.5 for text) and 1.4.11 (3 for the parts of charts, and
// borders).
func TestColoursHaveContrastInBothSchemes(t *testing.T) {
	schemes := strings.SplitN(pageStyle, "@media (prefers-color-scheme: dark)", 2)
	for i, scheme := range schemes {
		colours := make(map[string]float64)
		for _, m := range regexp.MustCompile(`--([a-z-]+): (#[0-9a-f]{6});`).FindAllStringSubmatch(scheme, -1) {
			colours[m[1]] = luminance(t, m[2])
		}
		check := func(front, background string, want float64) {
			a, b := colours[front]+0.05, colours[background]+0.05
			if got := max(a, b) / min(a, b); got < want || len(colours) < 15 {
				t.Errorf("scheme %d: %s on %s has a contrast of %.2f, want %.1f", i, front, background, got, want)
			}
		}
		for _, background := range []string{"card", "ground"} {
			for _, front := range []string{"text", "muted", "accent", "good", "low", "bad"} {
				check(front, background, 4.5)
			}
		}
		check("on-accent", "accent", 4.5)
		check("low", "warn", 4.5)
		check("bad", "alarm", 4.5)
		check("text", "warn", 4.5)
		for _, front := range []string{"edge", "admitted", "near", "refused"} {
			check(front, "card", 3)
		}
	}
}

func luminance(t *testing.T, colour string) float64 {
	t.Helper()
	sum := 0.0
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		n, err := strconv.ParseUint(colour[1+2*i:3+2*i], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		c := float64(n) / 255
		if c <= 0.04045 {
			c /= 12.92
		} else {
			c = math.Pow((c+0.055)/1.055, 2.4)
		}
		sum += weight * c
	}
	return sum
}
