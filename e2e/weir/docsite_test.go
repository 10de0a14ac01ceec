package weir

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
)

// The documentation is opened from a directory and searched by keyboard. The tab fails the test if
// a page breaks its content policy, asks any host, or writes to the console.
func TestTheDocumentationIsSearchedWithoutAServer(t *testing.T) {
	site := filepath.Join(t.TempDir(), "site")
	cmd := exec.CommandContext(t.Context(), "go", "run", "./scripts/docsite", "-out", site)
	cmd.Dir = repository
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make the site: %v\n%s", err, out)
	}
	const nowhere = "" // the host of a file
	b := openTab(t, "file://"+site+"/index.html", nowhere)
	clear := func() {
		ask[bool](b, `(() => { const box = document.querySelector(".search input"); box.value = ""; box.blur(); return true })()`)
	}
	for words, title := range map[string]string{
		"why 401":         "Why 401?",
		"--trusted-proxi": "--trusted-proxies",
		"from kong":       "How do I move from Kong's rate-limiting plugin?",
		"redis away":      "What happens if Redis is away?",
	} {
		b.press("/" + words)
		b.until(`document.querySelector("#found strong")?.textContent === ` + fmt.Sprintf("%q", title))
		clear()
	}
	b.press("/zzzz")
	b.until(`document.querySelector("#found .none") !== null`)
	clear()
	b.press("/from kong\r")
	b.until(`location.pathname.endsWith("/questions/from-kong.html") && document.querySelector("nav [aria-current]") !== null`)
	// the page is wider before its style sheet has come
	b.until(`document.documentElement.scrollWidth <= innerWidth`)
}
