package report

import (
	"encoding/json"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"golang.org/x/net/html"

	"github.com/weirlimit/weir/internal/replay"
	"github.com/weirlimit/weir/internal/uplot"
)

func document(t *testing.T, r *replay.Report) string {
	t.Helper()
	var b strings.Builder
	if err := HTML(&b, r, []Verdict{{Condition: "refused > 0.3%", Holds: true, Measured: "42 of 10,000 requests (0.42%)"}}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// elements returns all elements of a document, by name, parsed as a browser does.
func elements(t *testing.T, text string) map[string][]*html.Node {
	t.Helper()
	root, err := html.Parse(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]*html.Node{}
	for n := range root.Descendants() {
		if n.Type == html.ElementNode {
			all[n.Data] = append(all[n.Data], n)
		}
	}
	return all
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func TestNothingOnThePageRunsButItsOwn(t *testing.T) {
	text := document(t, made())
	all := elements(t, text)
	policy := ""
	for _, meta := range all["meta"] {
		if attribute(meta, "http-equiv") == "Content-Security-Policy" {
			policy = attribute(meta, "content")
		}
	}
	for _, want := range []string{"default-src 'none'", "img-src data:", "base-uri 'none'", "form-action 'none'", "require-trusted-types-for 'script'", "trusted-types 'none'"} {
		if !strings.Contains(policy+";", want+";") {
			t.Errorf("the content policy %q lacks %s", policy, want)
		}
	}
	if strings.Contains(policy, "unsafe") || strings.Contains(policy, "*") || strings.Contains(policy, "http") {
		t.Errorf("the content policy %q lets more in than the page's own", policy)
	}
	scripts := 0
	for _, n := range append(all["script"], all["style"]...) {
		if attribute(n, "type") == "application/json" {
			continue
		}
		if scripts++; !strings.Contains(policy, uplot.Hash(n.FirstChild.Data)) {
			t.Errorf("the policy does not name a %s of %d bytes", n.Data, len(n.FirstChild.Data))
		}
	}
	if scripts != 4 || len(all["script"]) != 3 || len(all["style"]) != 2 {
		t.Errorf("%d scripts and %d styles, want 3 with the data and 2", len(all["script"]), len(all["style"]))
	}
	for name, nodes := range all {
		for _, n := range nodes {
			for _, a := range n.Attr {
				if strings.HasPrefix(a.Key, "on") || a.Key == "style" || a.Key == "src" || (a.Key == "href" && !strings.HasPrefix(a.Val, "#") && !strings.HasPrefix(a.Val, "data:image/svg+xml,")) {
					t.Errorf("<%s> has %s=%q: it would run, or ask for something", name, a.Key, a.Val)
				}
			}
		}
	}
	if len(all["img"])+len(all["iframe"])+len(all["object"]) > 0 {
		t.Error("what a caller calls itself became an element")
	}
	if !strings.Contains(text, `&lt;script&gt;alert(1)`) || !strings.Contains(text, `\x1b[2J\u202e`) {
		t.Error("what a caller calls itself is not shown as text")
	}
}

// The browser would block these too (Trusted Types), but only when it meets them.
func TestThePageNeverParsesTextAsMarkup(t *testing.T) {
	for _, way := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "setHTML", "DOMParser", "createContextualFragment", "fetch(", "XMLHttp", "import("} {
		if strings.Contains(pageScript, way) {
			t.Errorf("page.js uses %s", way)
		}
	}
	for _, text := range []string{uplot.Script, pageScript, uplot.Style, pageStyle} {
		if lower := strings.ToLower(text); strings.Contains(lower, "</s") || strings.Contains(lower, "<!--") || strings.Contains(lower, "@import") || strings.Contains(lower, "url(") {
			t.Error("a script or style would end its element early, or asks for something")
		}
	}
}

// The sums of every chart are in a table too, for readers without scripts.
func TestTheTablesNeedNoScript(t *testing.T) {
	text := document(t, made())
	if noscript := elements(t, text)["noscript"]; len(noscript) != 1 {
		t.Errorf("%d noscript elements, want 1", len(noscript))
	}
	plain := regexp.MustCompile(`(?s)<script.*?</script>|<style.*?</style>|<[^>]*>`).ReplaceAllString(text, " ")
	plain = strings.Join(strings.Fields(plain), " ")
	for _, want := range []string{
		"policy.yaml 0123456789ab 10,000 42 0.42 % 1,234 3 0.24 % 12", "new.yaml 0123456789ab 10,000 62 0.62 %",
		"Newly refused 30 0.30 % of requests", "30 per minute by session or ip 1,234 3 0.24 % 77 60 1", "1000 per day by ip ~1,000 0",
		"ip 2001:db8:1:2::/64 2 90 31 2027-01-15 08:00:00", "access.log:17 it has no time", "no session in the log for 9,000 requests",
		"Failed refused &gt; 0.3% : 42 of 10,000 requests (0.42%)", "2027-01-15 08:00:00 to 2027-01-15 09:00:00",
	} {
		if !strings.Contains(plain, want) {
			t.Errorf("the page does not say %q:\n%s", want, plain)
		}
	}
}

// The page opens for a log of any length.
func TestThePageIsBoundedWhateverTheLog(t *testing.T) {
	r := made()
	sum := int64(0)
	long := replay.Series{Start: start, Step: 1}
	for i := range int64(100_000) {
		long.Requests, long.Refused = append(long.Requests, 9), append(long.Refused, i%2)
		sum += i % 2
	}
	r.Policy.Series, r.Policy.Limiters[0].Series, r.Difference.Series = long, long, long
	text := document(t, r)
	if len(text) > 200_000 {
		t.Errorf("the page has %d bytes", len(text))
	}
	data := regexp.MustCompile(`(?s)id="charts">(.*?)</script>`).FindStringSubmatch(text)
	var charts []chart
	if err := json.Unmarshal([]byte(data[1]), &charts); err != nil {
		t.Fatal(err)
	}
	for i, c := range charts {
		if len(c.Refused) > maxPoints || len(c.Requests) > maxPoints {
			t.Errorf("chart %d has %d points", i, len(c.Refused))
		}
	}
	got := int64(0)
	for _, n := range charts[0].Refused {
		got += n
	}
	if got != sum || charts[0].Step != 200 {
		t.Errorf("500 steps of %d s hold %d refused, want %d in steps of 200 s", charts[0].Step, got, sum)
	}
}

func TestAnEmptyReportIsAPageToo(t *testing.T) {
	if text := document(t, &replay.Report{}); !strings.Contains(text, "Replay of a log under a policy") {
		t.Error("an empty report makes no page")
	}
	var b strings.Builder
	if err := Table(&b, &replay.Report{}, 0); err != nil || !strings.Contains(b.String(), "0 requests") {
		t.Errorf("%v:\n%s", err, &b)
	}
}

// WCAG 2.2, 1.4.3 (text 4.5) and 1.4.11 (parts of charts and borders 3).
func TestColoursHaveContrastInBothSchemes(t *testing.T) {
	schemes := strings.SplitN(pageStyle, "@media (prefers-color-scheme: dark)", 2)
	for i, scheme := range schemes {
		colours := make(map[string]float64)
		for _, m := range regexp.MustCompile(`--([a-z-]+): (#[0-9a-f]{6});`).FindAllStringSubmatch(scheme, -1) {
			colours[m[1]] = luminance(t, m[2])
		}
		check := func(front, ground string, want float64) {
			a, b := colours[front]+0.05, colours[ground]+0.05
			if got := max(a, b) / min(a, b); got < want || len(colours) < 13 {
				t.Errorf("scheme %d: %s on %s has a contrast of %.2f, want %.1f", i, front, ground, got, want)
			}
		}
		for _, ground := range []string{"card", "ground"} {
			for _, front := range []string{"text", "muted", "accent", "good", "bad"} {
				check(front, ground, 4.5)
			}
		}
		check("low", "warn", 4.5)
		for _, front := range []string{"edge", "admitted", "refused"} {
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

// A policy is named after its file, and anyone may have named the file.
func TestNoNameOnThePageHidesWhatItIs(t *testing.T) {
	r := made()
	odd := "evil\x1b]0;owned\a\u202e</title>.yaml"
	r.Policy.Name, r.Against.Name, r.Log.Files[0], r.Log.Formats[0] = odd, odd, odd, odd
	r.Policy.Limiters[0].Name, r.Difference.Limiters[0].Name, r.Policy.Limiters[0].Windows[0].Window = odd, odd, odd
	r.Policy.Shared, r.Policy.Delay = 1, &replay.Delay{Delayed: 1}
	r.Policy.Limiters[0].Delay = r.Policy.Delay
	text := document(t, r)
	for _, c := range text {
		if c != '\n' && (unicode.IsControl(c) || unicode.Is(unicode.Cf, c)) && !strings.ContainsRune(uplot.Script+pageScript, c) {
			t.Fatalf("the page has the character %U", c)
		}
	}
	if title := elements(t, text)["title"][0].FirstChild.Data; title != `Replay: evil\x1b]0;owned\a\u202e</title>.yaml and evil\x1b]0;owned\a\u202e</title>.yaml` {
		t.Errorf("its title is %q", title)
	}
}
