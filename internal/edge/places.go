package edge

import (
	"strings"

	"github.com/weirlimit/weir/identity"
)

// A TokenForward is which places of API tokens an upstream gets. Whatever else a request has is
// forwarded either way.
type TokenForward string

const (
	// ForwardBearer forwards Authorization: Bearer, where sessions are as well, and no other place.
	// The empty TokenForward means it too.
	ForwardBearer TokenForward = "bearer"
	// ForwardAll forwards all places.
	ForwardAll TokenForward = "all"
	// ForwardNone forwards no place of Config.TokenFrom. If bearer is one of them, sessions are not
	// forwarded either.
	ForwardNone TokenForward = "none"
)

// TokenForwards are all values of a TokenForward.
func TokenForwards() []string {
	return []string{string(ForwardBearer), string(ForwardAll), string(ForwardNone)}
}

// tokenPlaces returns where requests may have their API tokens.
func (c *Config) tokenPlaces() []identity.Place {
	if len(c.TokenFrom) == 0 {
		return []identity.Place{{}}
	}
	return c.TokenFrom
}

// hiddenTokens returns the places that an upstream does not get.
func (c *Config) hiddenTokens() []identity.Place {
	var hidden []identity.Place
	for _, p := range c.tokenPlaces() {
		switch {
		case c.TokenForward == ForwardAll:
		case c.TokenForward != ForwardNone && p == identity.Place{}:
		default:
			hidden = append(hidden, p)
		}
	}
	return hidden
}

// tokenExamples returns how callers send a token, for the message of a 401, such as
// "as X-Api-Key: <key> or as ?api_key=<key>".
func (c *Config) tokenExamples() string {
	var all []string
	for _, p := range c.tokenPlaces() {
		all = append(all, "as "+p.Example())
	}
	last := len(all) - 1
	if last == 0 {
		return all[0]
	}
	return strings.Join(all[:last], ", ") + " or " + all[last]
}

// placesRow returns the part of the start-up line of tokens about their places; empty if they are
// in the usual one. A proxy that asks forwards the request that its client has sent, whatever is
// withheld from an upstream.
func (c *Config) placesRow() string {
	if len(c.TokenFrom) == 0 {
		return ""
	}
	row, asked := ", read from "+placeNames(c.TokenFrom), c.ForwardAuth.Listen != ""
	if asked && len(c.Sites) == 0 {
		return row + ", and forwarded by the proxy unless it removes them"
	}
	to := ""
	if asked {
		to = " to the upstream; a proxy that asks forwards them unless it removes them"
	}
	hidden := c.hiddenTokens()
	if len(hidden) == 0 {
		return row
	}
	which, are := "which", "are"
	if len(hidden) < len(c.TokenFrom) {
		which = "of which " + placeNames(hidden)
	}
	if len(hidden) == 1 {
		are = "is"
	}
	return row + ", " + which + " " + are + " not forwarded" + to
}

func placeNames(places []identity.Place) string {
	names := make([]string, len(places))
	for i, p := range places {
		names[i] = p.String()
	}
	return strings.Join(names, ", ")
}
