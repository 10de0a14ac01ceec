package folder

import (
	"net/url"
	"path"
	"strconv"
	"strings"
	"unicode"
)

// address returns the URL of a document. If own, the url in its front matter, is empty, the URL is
// the path of the file without its extension below base; an index page has the URL of its folder.
// If own begins with a slash, it is a path on base's server. given reports whether base was not
// used.
func address(base *url.URL, name, own string) (link string, given bool, err error) {
	if own != "" {
		if strings.HasPrefix(own, "/") {
			if u, err := base.Parse(own); err == nil {
				own = u.String()
			}
		} else {
			given = true
		}
		if !linkable(own) {
			return "", given, problem("write it in full, such as https://example.com/page, or from the root, such as /page", "the url of its front matter, %s, is neither an absolute http or https URL nor a path that begins with a slash", quoted(own))
		}
		if len(own) > MaxURL {
			return "", given, problem("shorten it", "the url of its front matter has %d bytes: at most %d are allowed", len(own), MaxURL)
		}
		return own, given, nil
	}
	page := strings.TrimSuffix(name, path.Ext(name))
	folder, last := path.Split(page)
	if strings.EqualFold(last, "index") {
		page = folder
	}
	if link = below(base, page).String(); len(link) > MaxURL {
		return "", false, problem("shorten the names, or give the file a url of its own in front matter", "its link would have %d bytes: at most %d are allowed", len(link), MaxURL)
	}
	return link, false, nil
}

// below returns base with a path appended. Escapes in base are kept: a %2F does not become a slash.
func below(base *url.URL, page string) *url.URL {
	u := *base
	escaped := base.EscapedPath()
	if strings.HasSuffix(escaped, "/") {
		u.Path, escaped = strings.TrimSuffix(u.Path, "/"), strings.TrimSuffix(escaped, "/")
	}
	u.Path, u.RawPath = u.Path+"/"+page, escaped+"/"+(&url.URL{Path: page}).EscapedPath()
	return &u
}

// linkable reports whether the bulk-sync API accepts an address as a link that visitors can follow.
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

// quoted returns the beginning of s on one line, in quotes.
func quoted(s string) string { return strconv.Quote(line(s, 80)) }
