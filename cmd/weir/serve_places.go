package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirlimit/weir/identity"
)

// tokenPlaces are the places where requests have their API token. The flag is repeatable.
type tokenPlaces []identity.Place

// Set adds the places of a comma-separated list.
func (t *tokenPlaces) Set(value string) error {
	all := slices.Clone(*t)
	for _, element := range strings.Split(value, ",") {
		p, err := identity.ParsePlace(strings.TrimSpace(element))
		if err != nil {
			return err
		}
		if slices.Contains(all, p) {
			return fmt.Errorf("%v is given twice: give each place once", p)
		}
		all = append(all, p)
	}
	*t = all
	return nil
}

func (t *tokenPlaces) String() string {
	names := make([]string, len(*t))
	for i, p := range *t {
		names[i] = p.String()
	}
	return strings.Join(names, ",")
}

func (t *tokenPlaces) Type() string { return "PLACE,..." }
