package weir

import (
	"context"
	"flag"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// picture is where `make screenshot` writes the demo's picture.
var picture = flag.String("screenshot", "", "`file` to write the demo's picture to")

// shopDocuments and shopCoupons are the content of a small shop.
const (
	shopDocuments = `
{"id":"returns","title":"Returns and refunds","url":"https://shop.example/returns","text":"You can return anything within 30 days, for any reason. Send it back with the label in the parcel; the refund is on your account within five working days of its arrival."},
{"id":"shipping","title":"Shipping times and costs","url":"https://shop.example/shipping","text":"We ship every order within one working day. Standard shipping takes two to four days and is free from 50 euros. A return shipment costs you nothing."},
{"id":"care","title":"Caring for wool","url":"https://shop.example/care","text":"Wash wool by hand in lukewarm water, and dry it lying flat."}`
	shopCoupons = `{"code":"SPRING10","percent":10}`
)

// library syncs documents and coupons to workspace demo.
func library(t *testing.T, s *server, documents, coupons string) {
	t.Helper()
	token := apiToken(t, s.data, "demo")
	for path, items := range map[string]string{"documents": documents, "coupons": coupons} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s.url+"/v1/wp/"+path, strings.NewReader(`{"items":[`+items+`]}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+token)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			t.Fatalf("PUT %s: status %d", path, answer.StatusCode)
		}
	}
}

// prefer sets the visitor's colour scheme, and turns animation off.
func (b *tab) prefer(scheme string) {
	b.Helper()
	b.do("prefer "+scheme, chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}})
		return err
	}))
}

// spend is JavaScript that uses a part of the chat's budget, as a busy visitor
// does.
const spend = `(async () => {
	for (let n = 0; n < 109; n++) await fetch("/api/v1/widget/conversations", { headers: { Authorization: "Bearer " + session.token } });
	return true;
})()`

// The page in use, on its own server. The README shows the picture, so the picture
// must be small.
func TestThePictureOfTheDemoIsSmall(t *testing.T) {
	s := serveWeir(t)
	library(t, s, shopDocuments, shopCoupons)
	b := openTab(t, s.url+"/demo", host(t, s.url))
	b.do("resize", chromedp.EmulateViewport(1120, 864))
	b.prefer("light")
	b.until(`part("feed-state").textContent === "Live" && feed.after > 0`)
	ask[bool](b, spend)
	b.do("try a coupon", chromedp.Focus(chromedp.CSS("#code")))
	b.press("SPRING10\t49.90\r")
	b.until(`document.querySelector("#coupon output").textContent !== ""`)
	for _, question := range []string{"Can I return a jumper for a refund?", "And how do I wash wool?"} {
		b.sendMessage(question)
	}
	b.until(`document.querySelectorAll(".answer a").length > 1`)
	ask[bool](b, `draft.blur(); scrollTo(0, 0); true`)
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	png, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		t.Fatal(err)
	}
	if len(png) < 10_000 || len(png) > 250_000 {
		t.Errorf("the picture has %d bytes, want at most 250,000", len(png))
	}
	if *picture != "" {
		if err := os.WriteFile(*picture, png, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b.leave()
	s.end(t)
}
