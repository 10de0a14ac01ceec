package weir

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// focused describes the element that has the focus, and whether the focus is
// visible.
const focused = `(() => {
	const at = document.activeElement, style = getComputedStyle(at);
	return { id: at.id, tag: at.tagName, text: at.textContent.trim(), href: at.href ?? "", rel: at.rel ?? "",
		label: at.getAttribute("aria-label") ?? "", ring: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2 };
})()`

// A stop is an element that the Tab key reaches.
type stop struct {
	ID, Tag, Text, Href, Rel, Label string
	Ring                            bool
}

// tabTo presses Tab, or Shift and Tab, until it reaches its target.
func (b *tab) tabTo(there func(stop) bool, modifiers ...chromedp.Modifier) stop {
	b.Helper()
	var passed []stop
	for range 40 {
		b.press(kb.Tab, modifiers...)
		at := ask[stop](b, focused)
		if !at.Ring {
			b.Errorf("the focus on %+v is invisible", at)
		}
		if there(at) {
			return at
		}
		passed = append(passed, at)
	}
	b.Fatalf("the Tab key passes %+v and never gets there", passed)
	return stop{}
}

// Without a mouse, on another origin, a visitor asks a question, reads and rates
// the answer, follows its source, and redeems a coupon.
func TestTheWidgetWorksWithoutAMouse(t *testing.T) {
	s := serveWeir(t)
	library(t, s, shopDocuments, shopCoupons)
	b := visit(t, s)
	b.until(`part("feed-state").textContent === "Live"`)

	if first := b.tabTo(func(stop) bool { return true }); first.Text != "Skip to the message box" {
		t.Errorf("the first stop is %+v, want the skip link", first)
	}
	b.press("\r")
	b.until(`document.activeElement === draft`)
	b.press("Can I return a jumper for a refund?\r")
	b.until(`document.querySelectorAll(".answer").length === 1`)
	if shown := b.text(".answer .text"); !strings.Contains(shown, "within 30 days") || !ask[bool](b, `document.activeElement === draft && draft.value === ""`) {
		t.Errorf("the answer is %q; the focus is on %+v", shown, ask[stop](b, focused))
	}

	b.tabTo(func(at stop) bool { return at.Label == "Helpful" }, chromedp.ModifierShift)
	b.press(" ")
	b.until(`document.querySelector(".said").textContent === "Thank you."`)
	link := b.tabTo(func(at stop) bool { return at.Tag == "A" }, chromedp.ModifierShift)
	if link.Text == "" || !strings.HasPrefix(link.Href, "https://") || link.Rel != "noopener noreferrer" {
		t.Errorf("the source is %+v", link)
	}

	b.tabTo(func(at stop) bool { return at.ID == "code" })
	b.press("spring10" + kb.Tab + "49.90\r")
	b.until(`document.querySelector("#coupon output").textContent !== ""`)
	if got := b.text("#coupon output"); got != "SPRING10: 10 % off. You save €4.99 of €49.90." {
		t.Errorf("the coupon form shows %q", got)
	}
	b.until(`[...part("events").children].some((each) => each.textContent.includes("feedback.given"))`)
	b.leave()
	s.end(t)
}

// The entries that the page's accessibility tree must have: a role and a name.
var named = []string{
	"banner ", "main ", "complementary Budgets and the widget’s other parts", "contentinfo ",
	"heading Weir demo", "heading Chat", "region Chat", "region Budgets", "region Coupon", "region Events", "region Rating", "region Stay in touch",
	"log Conversation", "meter Budget of this chat", "textbox Your message", "button Send", "status ",
	"table Budgets", "rowheader Messages", "columnheader Resets in",
	"textbox Code", "textbox Order total", "textbox Currency", "button Apply",
	"group How was this chat?", "radio 1 of 5, poor", "radio 5 of 5, excellent", "textbox Comment (optional)", "button Rate",
	"textbox Email address", "textbox Name (optional)", "button Leave it", "list Events", "link documentation",
	"group Was this answer helpful?", "button Helpful", "button Not helpful", "blockquote ", "link Returns and refunds",
}

// A screen reader finds every part of the page by role and name, reads answers as
// they arrive, and reads the budget.
func TestTheWidgetIsNamedForScreenReaders(t *testing.T) {
	s := serveWeir(t)
	library(t, s, shopDocuments, shopCoupons)
	b := visit(t, s)
	b.until(`part("feed-state").textContent === "Live"`)
	b.sendMessage("How do I return a jumper?")
	b.until(`document.querySelectorAll(".answer a").length > 0`)
	var tree accessibility.GetFullAXTreeResult
	b.do("read the accessibility tree", chromedp.Func(func(ctx context.Context, target *chromedp.Target) (err error) {
		tree, err = cdp.Call(ctx, target, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
		return err
	}))
	var all []string
	for _, node := range tree.Nodes {
		if node.Ignored {
			continue
		}
		role, name := spoken(node.Role), spoken(node.Name)
		all = append(all, role+" "+name)
		switch {
		case property(node, "focusable") == "true" && name == "" && role != "RootWebArea":
			t.Errorf("a %s can have the focus and has no name", role)
		case role == "log" && property(node, "live") != "polite":
			t.Errorf("the conversation is %q to a screen reader, want polite", property(node, "live"))
		case role == "meter" && spoken(node.Value) != ask[string](b, `part("gauge").getAttribute("aria-valuenow")`):
			t.Errorf("the gauge is at %s", spoken(node.Value))
		}
	}
	if spokenText := ask[string](b, `part("gauge").getAttribute("aria-valuetext")`); !regexp.MustCompile(`^29\d of 300 left, full again in \d+ s$`).MatchString(spokenText) {
		t.Errorf("the gauge is read as %q", spokenText)
	}
	for _, want := range named {
		if !slices.Contains(all, want) {
			t.Errorf("there is no %q", want)
		}
	}
	if t.Failed() {
		t.Logf("there are\n%s", strings.Join(all, "\n"))
	}
	b.leave()
	s.end(t)
}

// spoken is a value of the accessibility tree as text.
func spoken(v *accessibility.Value) string {
	if v == nil {
		return ""
	}
	var text string
	if json.Unmarshal(v.Value, &text) != nil {
		return string(v.Value) // a number, or true or false
	}
	return text
}

func property(node *accessibility.Node, name accessibility.PropertyName) string {
	for _, p := range node.Properties {
		if p.Name == name {
			return spoken(p.Value)
		}
	}
	return ""
}

// weak is JavaScript that puts the page into every state at once. It returns each
// text with a contrast below 4.5 to its background, and each edge and mark with one
// below 3 (WCAG 2.2, 1.4.3 and 1.4.11), and the number of elements checked.
const weak = `(() => {
	refuse(new Refusal(429, "Too many."));
	part("retry").hidden = false;
	part("countdown").textContent = "You can send again in 9 s.";
	part("send").disabled = true;
	part("feed-dot").dataset.state = "live";
	["fine", "low", "spent"].forEach((state, n) => { part("budgets").rows[n].dataset.state = state; });
	finish(document.querySelector("#coupon output"), "refused", "No such coupon.", "en");
	finish(document.querySelector("#lead output"), "done", "Thank you.", "en");
	document.querySelector(".thumb").setAttribute("aria-pressed", "true");

	const colour = (text) => { const [r, g, b, a = 1] = text.match(/[0-9.]+/g).map(Number); return { rgb: [r, g, b], a }; };
	const over = (top, ground) => top.rgb.map((c, n) => c * top.a + ground[n] * (1 - top.a));
	const ground = (element) => {
		if (element === null) return [255, 255, 255];
		const own = colour(getComputedStyle(element).backgroundColor);
		return own.a === 1 ? own.rgb : over(own, ground(element.parentElement));
	};
	const light = (rgb) => rgb.map((c) => c / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
		.reduce((sum, c, n) => sum + c * [0.2126, 0.7152, 0.0722][n], 0);
	const contrast = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
	let looked = 0;
	const faults = [];
	const check = (element, what, front, behind, least) => {
		looked++;
		const got = contrast(over(colour(front), behind), behind);
		if (got < least) faults.push(what + " of " + (element.id || element.className || element.tagName) + " " + element.textContent.slice(0, 30) + ": " + got.toFixed(2));
	};
	const pass = () => {
		for (const element of document.body.querySelectorAll("*")) {
			const style = getComputedStyle(element);
			if (!element.checkVisibility() || element.closest("svg")) continue;
			const words = [...element.childNodes].some((n) => n.nodeType === 3 && n.data.trim() !== "") || /^(INPUT|TEXTAREA)$/.test(element.tagName);
			if (words) check(element, "text", style.color, ground(element), 4.5);
			if (element.matches("input:not([type=radio]), textarea, .gauge, .thumb, button:disabled, .notice")) {
				check(element, "edge", style.borderTopColor, ground(element.parentElement), 3);
			}
			if (element.matches(".fill, .dot")) check(element, "mark", style.backgroundColor, ground(element.parentElement), 3);
			if (element.matches(".thumb")) check(element, "mark", style.color, ground(element), 3);
		}
	};
	for (const state of ["fine", "low", "spent"]) {
		part("budget").dataset.state = state;
		pass();
	}
	for (const element of [draft, part("code"), document.querySelector(".sources a"), part("docs")]) {
		element.focus({ focusVisible: true });
		check(element, "focus ring", getComputedStyle(element).outlineColor, ground(element.parentElement), 3);
	}
	return { looked, faults };
})()`

// All text is readable in light and dark mode, and nothing is cut off on the
// narrowest telephone.
func TestThePageHasContrastAndFits(t *testing.T) {
	s := serveWeir(t)
	library(t, s, shopDocuments, shopCoupons)
	b := visit(t, s)
	b.until(`part("feed-state").textContent === "Live"`)
	b.sendMessage("How do I return a jumper?")
	b.sendMessage(strings.Repeat("Donaudampfschifffahrt", 8))
	b.until(`document.querySelectorAll(".answer").length === 2`)
	backgrounds := map[string]bool{}
	for _, scheme := range []string{"light", "dark"} {
		b.prefer(scheme)
		backgrounds[ask[string](b, "getComputedStyle(document.body).backgroundColor")] = true
		found := ask[struct {
			Looked int
			Faults []string
		}](b, weak)
		if found.Looked < 100 || len(found.Faults) > 0 {
			t.Errorf("%s: of %d, these have too little contrast: %s", scheme, found.Looked, strings.Join(found.Faults, "\n"))
		}
		for _, width := range []int64{1280, 360} {
			b.do("resize", chromedp.EmulateViewport(width, 800))
			if wide := ask[int64](b, "document.documentElement.scrollWidth"); wide > width || ask[bool](b, `part("log").scrollWidth > part("log").clientWidth`) {
				t.Errorf("%s: in a window of %d pixels the page takes %d, or its conversation does not fit", scheme, width, wide)
			}
			small := ask[[]string](b, `[...document.querySelectorAll("button, input, textarea")].filter((e) => e.checkVisibility())
				.filter((e) => { const box = (e.closest("label") ?? e).getBoundingClientRect(); return box.width < 24 || box.height < 24 }).map((e) => e.outerHTML)`)
			if len(small) > 0 {
				t.Errorf("%s, %d pixels: too small to be hit with a finger (WCAG 2.2, 2.5.8): %v", scheme, width, small)
			}
		}
	}
	if len(backgrounds) != 2 {
		t.Errorf("by day and by night the page is %v", backgrounds)
	}
	b.leave()
	s.end(t)
}

// Foreign text is shown as text, even if it looks like markup. A link leads to a
// web page, or is not a link.
func TestForeignMarkupIsShownAsText(t *testing.T) {
	const bold, image, script = `<b id=x1>Wool</b>`, `<img src=x onerror=\"pwned=1\">`, `<script>pwned=1</script>`
	plain := strings.NewReplacer(`\"`, `"`)
	s := serveWeir(t)
	library(t, s, fmt.Sprintf(`{"id":"%[2]s","title":"%[1]s %[2]s","url":"https://shop.example/?q=\"><img/src=x/onerror=pwned=1>","text":"Wool %[3]s is washed by hand %[2]s."}`,
		bold, image, script), shopCoupons)
	b := visit(t, s)
	b.until(`part("feed-state").textContent === "Live"`)
	b.sendMessage(`Is wool washed by hand? ` + plain.Replace(image+script))
	b.until(`document.querySelectorAll(".answer a").length > 0`)
	b.do("try a coupon", chromedp.Focus(chromedp.CSS("#code")))
	b.press("<b>X</b>\r")
	b.until(`document.querySelector("#coupon output").textContent !== ""`)
	b.forgive("status of 400")
	if ask[bool](b, `"pwned" in window || document.querySelector("#log img, #log script, #log b, output b, #events img, #events b") !== null`) {
		t.Errorf("markup became elements: %s", ask[string](b, "document.body.innerHTML"))
	}
	for selector, want := range map[string]string{
		".visitor .text": `Is wool washed by hand? ` + plain.Replace(image+script),
		".answer .text":  plain.Replace(script),
		".answer a":      plain.Replace(bold + " " + image),
		"#coupon output": "<b>X</b>",
	} {
		if got := b.text(selector); !strings.Contains(got, want) {
			t.Errorf("%s reads %q, want %q in it", selector, got, want)
		}
	}
	links := ask[[]string](b, `(() => {
		happened({ id: feed.after, type: "<img src=x>", data: { "<b>": "<img src=x onerror=pwned=1>" }, created_at: "2026-01-01T00:00:00Z" });
		return ["javascript:alert(1)", "data:text/html,x", "vbscript:x", "//shop.example", "", "https://shop.example/", "HTTP://SHOP.EXAMPLE/"]
			.map((url) => { const made = link({ title: "t", url }); return made.tagName + " " + (made.getAttribute("href") ?? "") + " " + (made.rel ?? ""); });
	})()`)
	want := []string{"SPAN  ", "SPAN  ", "SPAN  ", "SPAN  ", "SPAN  ", "A https://shop.example/ noopener noreferrer", "A HTTP://SHOP.EXAMPLE/ noopener noreferrer"}
	if !slices.Equal(links, want) {
		t.Errorf("links: %q, want %q", links, want)
	}
	if ask[bool](b, `document.querySelector("#events img, #events b") !== null`) || !strings.Contains(b.text("#events"), "<img src=x>") {
		t.Errorf("events: %s", ask[string](b, `part("events").innerHTML`))
	}
	b.leave()
	s.end(t)
}
