package weir

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/cli"

	"github.com/chromedp/chromedp"
)

// replayPicture is where `make screenshot` writes the picture of a replay's page.
var replayPicture = flag.String("replay", "", "`file` to write the picture of a replay's page to")

// Hostile agents and paths of callers.
const (
	hostileAgent = `</script><script>document.title='owned'</script><img src=https://example.com/x onerror=alert(1)>`
	hostilePath  = `/chat/%3Csvg%20onload=alert(2)%3E`
)

// visits is a log of an afternoon: a busy shop, a program that asks too often, and
// a caller that tries markup.
func visits() string {
	var b strings.Builder
	begin := time.Date(2027, 1, 15, 12, 0, 0, 0, time.UTC)
	request := func(second int, from, path, agent string) {
		fmt.Fprintf(&b, "%s - - [%s] \"POST %s HTTP/1.1\" 200 17 \"-\" \"%s\"\n",
			from, begin.Add(time.Duration(second)*time.Second).Format("02/Jan/2006:15:04:05 -0700"), path, agent)
	}
	for second := range 3 * 3600 {
		if busy := 3 + second/1200%4; second%7 < busy {
			request(second, fmt.Sprintf("198.51.100.%d", second*busy%240), "/chat", "Mozilla/5.0")
		}
		if second%3 == 0 {
			request(second, fmt.Sprintf("203.0.113.%d", second/3%90), "/search?q=blue", "Mozilla/5.0")
		}
		if second > 5000 && second < 7400 && second%2 == 0 {
			request(second, "192.0.2.7", "/chat", "pricebot/2.1")
		}
		if second > 8000 && second < 8100 {
			request(second, "192.0.2.66", hostilePath, hostileAgent)
		}
	}
	b.WriteString("\x1b[2J<b>no line</b>\n")
	return b.String()
}

const visitsPolicy = `
limiters:
  - name: chat
    routes: [POST /chat*]
    windows: [%d per minute by ip+agent]
  - name: search
    routes: [/search]
    windows: [%d per minute by ip]
`

// visitsPage runs weir simulate to write the page of visits, and returns its
// address.
func visitsPage(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	log, path := write("access.log", visits()), filepath.Join(dir, "page.html")
	t.Chdir(dir)
	write("policy.yaml", fmt.Sprintf(visitsPolicy, 20, 60))
	write("stricter.yaml", fmt.Sprintf(visitsPolicy, 12, 60))
	var out, errs bytes.Buffer
	args := []string{"simulate", log, "--policy", "policy.yaml", "--against", "stricter.yaml", "--html", path, "--fail-if", "newly-refused > 5%"}
	if code := run(args, nil, strings.NewReader(""), &out, &errs); code != cli.Done {
		t.Fatalf("weir %v: status %d\n%s%s", args, code, &out, &errs)
	}
	return "file://" + path
}

// The page opens from a file, makes no requests, and shows callers' names as text.
// openTab fails if it makes a request, or writes to its console.
func TestTheReplayPageIsSelfContained(t *testing.T) {
	b := openTab(t, visitsPage(t), "")
	b.until(`document.querySelectorAll(".chart canvas").length >= 8`)
	if found := ask[int](b, `document.querySelectorAll("img, iframe, b, link[rel=stylesheet]").length`); found != 0 {
		t.Errorf("%d elements were made from a log's text", found)
	}
	if title := ask[string](b, `document.title`); title != "Replay: policy.yaml and stricter.yaml" {
		t.Errorf("the title is %q", title)
	}
	for _, want := range []string{hostileAgent[:40], `\x1b[2J<b>no line</b>`, "pricebot/2.1"} {
		if text := ask[string](b, `document.body.textContent`); !strings.Contains(text, want) {
			t.Errorf("the page does not show %s", want)
		}
	}
	if asked := len(b.requests); asked != 1 {
		t.Errorf("the page asked %d times, want once: for itself", asked)
	}
	for _, scheme := range []string{"light", "dark"} {
		b.prefer(scheme)
		for _, width := range []int64{1280, 400} {
			b.do("resize", chromedp.EmulateViewport(width, 900))
			b.until(`[...document.querySelectorAll(".chart canvas")].every((c) => c.clientWidth <= c.closest(".chart").clientWidth && c.clientWidth > 200)`)
			if over := ask[int](b, `document.documentElement.scrollWidth - innerWidth`); over > 0 {
				t.Errorf("%s, %d wide: the page is %d wider than the window", scheme, width, over)
			}
		}
	}
	b.leave()
}

// Paper is light even if the screen is dark, and folded parts are printed.
func TestTheReplayPageIsPrintedInLightMode(t *testing.T) {
	b := openTab(t, visitsPage(t), "")
	b.prefer("dark")
	const ground = `getComputedStyle(document.querySelector(".card")).backgroundColor`
	b.until(ground + ` !== "rgb(255, 255, 255)"`)
	ask[bool](b, `dispatchEvent(new Event("beforeprint"))`)
	if got := ask[string](b, ground); got != "rgb(255, 255, 255)" {
		t.Errorf("a card is printed on %s", got)
	}
	if shut := ask[int](b, `document.querySelectorAll("details:not([open])").length`); shut != 0 {
		t.Errorf("%d lists are not printed", shut)
	}
	// As wide as paper.
	b.until(`[...document.querySelectorAll(".chart canvas")].every((c) => c.clientWidth <= 640)`)
	ask[bool](b, `dispatchEvent(new Event("afterprint"))`)
	b.until(ground + ` !== "rgb(255, 255, 255)"`)
	b.leave()
}

// Without a pointer one reads a chart step by step.
func TestTheReplayPageWorksFromTheKeyboard(t *testing.T) {
	b := openTab(t, visitsPage(t), "")
	b.until(`document.querySelectorAll(".chart canvas").length >= 8`)
	b.do("go to a chart", chromedp.Focus(chromedp.CSS("#time .chart")))
	output := func() string { return ask[string](b, `document.activeElement.querySelector("output").textContent`) }
	if got := output(); !strings.HasPrefix(got, "a step is ") {
		t.Errorf("at first a chart reads %q", got)
	}
	const right, end, home = "\u0303", "\u0305", "\u0306"
	for _, step := range []struct{ key, want string }{
		{right, "2027-01-15 12:00:00, "}, {end, "2027-01-15 14:59:"}, {home, "2027-01-15 12:00:00, "},
	} {
		b.press(step.key)
		if got := output(); !strings.HasPrefix(got, step.want) || !strings.HasSuffix(got, " refused") {
			t.Errorf("after a key it reads %q, want %q", got, step.want)
		}
	}
	if label := ask[string](b, `document.activeElement.getAttribute("aria-label")`); !strings.Contains(label, " requests, ") || !strings.Contains(label, "most of them at 2027-01-15") {
		t.Errorf("the chart is read as %q", label)
	}
	b.leave()
}

// The manual shows the picture, so the picture must be small.
func TestThePictureOfAReplayIsSmall(t *testing.T) {
	b := openTab(t, visitsPage(t), "")
	b.prefer("light")
	b.do("resize", chromedp.EmulateViewport(1280, 1180))
	b.until(`document.querySelectorAll(".chart canvas").length >= 8`)
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	png, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		t.Fatal(err)
	}
	if len(png) < 30_000 || len(png) > 200_000 {
		t.Errorf("the picture has %d bytes, want a picture of at most 200,000", len(png))
	}
	if *replayPicture != "" {
		if err := os.WriteFile(*replayPicture, png, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b.leave()
}
