package admin

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/policyfile"
)

// lists returns the members of c that hold NAME=VALUE, by their key sources.
func (c *callerQuery) lists() map[string]*[]string {
	return map[string]*[]string{identity.Header: &c.Header, identity.Path: &c.Path, identity.Cookie: &c.Cookie, identity.Query: &c.Query, identity.Claim: &c.Claim}
}

// addLists gives the caller the values that the lists of c hold, and returns the claims among them,
// whose keys depend on the session.
func (n *named) addLists(to *partialCaller, c *callerQuery) (claims map[string]string, err error) {
	claims = make(map[string]string)
	lists := c.lists()
	for _, row := range weir.Sources() {
		list := lists[row.Name]
		if list == nil {
			continue
		}
		for _, text := range *list {
			source, value, err := ParseValue(row, text)
			if err == nil && to.values[source]+claims[source] != "" {
				err = fmt.Errorf("%s is given twice", source)
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", row.Name, err)
			}
			if row.From != "" {
				claims[source] = value
			} else {
				n.add(to, source, value)
			}
		}
	}
	return claims, nil
}

// ParseValue reads NAME=VALUE as a key source, whose row is given and has a name after the colon,
// and its value. Its errors do not repeat the value, nor a text without a name, which may be a
// value.
func ParseValue(row weir.Source, s string) (source, value string, err error) {
	_, example := weir.SplitSource(row.Example())
	name, value, ok := strings.Cut(s, "=")
	if row.Name == identity.Header {
		value = strings.Trim(value, " \t")
	}
	if !ok || value == "" {
		return "", "", fmt.Errorf("a name and its value are needed, as in %s=VALUE", example)
	}
	key, err := weir.ParseKey(row.Name + ":" + name)
	if err != nil || len(key) != 1 || len(key[0]) != 1 {
		return "", "", fmt.Errorf("the text before the = is not the name of a %s that a limiter can count by, such as %s", word(row), example)
	}
	if row.Name == identity.Cookie {
		if value, ok = identity.CookieValue(value); !ok || value == "" {
			return "", "", errors.New("the value of a cookie is visible ASCII without quotes, backslashes, commas and &, or escaped (%2C): a request with another is counted as one without the cookie")
		}
	}
	if row.Name == identity.Path {
		if value, ok = weir.FoldSegment(value); !ok {
			return "", "", errors.New("the value of a parameter is one segment of a path, decoded and without slashes, as in tenant=acme")
		}
	}
	return key[0][0], value, nil
}

// word returns what a source reads, in a word.
func word(row weir.Source) string {
	switch row.Name {
	case identity.Header:
		return "field"
	case identity.Query, identity.Path:
		return "parameter"
	}
	return row.Name
}

// hostOf returns the form in which a host is counted. It accepts a name in any letters.
func hostOf(text string) (string, error) {
	name, err := policyfile.ASCIIHost(text)
	if err != nil {
		return "", errors.New("host must be the name of a host, such as shop.example.com")
	}
	host, ok := weir.AppendHost(nil, name)
	if !ok {
		return "", errors.New("host must be the name or the address of a host, such as shop.example.com")
	}
	return string(host), nil
}
