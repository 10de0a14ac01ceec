package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/cli"
)

// tokenPlaces are the places where requests have their API token. The flag is repeatable.
type tokenPlaces []identity.Place

// Set adds the places of a comma-separated list.
func (t *tokenPlaces) Set(value string) error {
	all := slices.Clone(*t)
	for _, element := range strings.Split(value, ",") {
		element = strings.TrimSpace(element)
		p, err := identity.ParsePlace(element)
		if err != nil {
			text := err.Error()
			if element == value { // which the caller shows
				text = strings.TrimPrefix(text, strconv.Quote(element)+": ")
			}
			return cli.UsageError(placeHint(element), "%s", text)
		}
		if slices.Contains(all, p) {
			return fmt.Errorf("%v is given twice: give each place once", p)
		}
		all = append(all, p)
	}
	*t = all
	return nil
}

// placeHint returns the place that is probably meant, if its kind is missing or in other letters.
func placeHint(s string) string {
	if strings.EqualFold(s, "Authorization") {
		return "write: bearer, or basic"
	}
	if slices.Contains([]string{"header", "query", "cookie"}, strings.ToLower(s)) {
		return "" // a kind without a name is not the name of a parameter
	}
	for _, form := range []string{strings.ToLower(s), "header:" + s, "query:" + s} {
		if _, err := identity.ParsePlace(form); err == nil && (!strings.HasPrefix(form, "header:") || strings.Contains(s, "-")) {
			return "write: " + form
		}
	}
	return ""
}

func (t *tokenPlaces) Items() []string {
	names := make([]string, len(*t))
	for i, p := range *t {
		names[i] = p.String()
	}
	return names
}

func (t *tokenPlaces) String() string { return strings.Join(t.Items(), ",") }
func (t *tokenPlaces) Type() string   { return "PLACE,..." }
func (t *tokenPlaces) Adds() bool     { return true }
