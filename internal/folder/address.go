package folder

import (
	"net/url"
	"path"
	"strconv"
	"strings"
	"unicode"
)

// address returns where a document's link leads: to own, the URL that its file gives, else to its path below base, without
// the extension. The address of an index page is its folder.
func address(base *url.URL, name, own string) (link string, given bool, err error) {
	if own != "" {
		if !linkable(own) {
			return "", true, problem("write it in full, such as https://example.com/page, or remove it", "the url of its front matter, %s, is no absolute http or https URL", quoted(own))
		}
		if len(own) > MaxURL {
			return "", true, problem("shorten it", "the url of its front matter has %d bytes: at most %d are allowed", len(own), MaxURL)
		}
		return own, true, nil
	}
	page := strings.TrimSuffix(name, path.Ext(name))
	folder, last := path.Split(page)
	if strings.EqualFold(last, "index") {
		page = folder
	}
	u := *base
	u.Path, u.RawPath = strings.TrimSuffix(u.Path, "/")+"/"+page, ""
	if link = u.String(); len(link) > MaxURL {
		return "", false, problem("shorten the names, or give the file a url of its own in front matter", "its link would have %d bytes: at most %d are allowed", len(link), MaxURL)
	}
	return link, false, nil
}

// linkable says whether a visitor can follow an address, as the surface does.
func linkable(address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil {
		return false
	}
	if _, err := strconv.ParseUint(u.Port(), 10, 16); u.Port() != "" && err != nil {
		return false
	}
	return !strings.ContainsFunc(address, func(r rune) bool { return unicode.IsSpace(r) || unicode.Is(unicode.Cf, r) })
}

// quoted shows what a file says: on one line, and no more of it than helps.
func quoted(s string) string { return strconv.Quote(line(s, 80)) }
