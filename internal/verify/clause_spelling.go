package verify

import (
	"context"
	"net/http"
	"slices"
	"strings"
)

// checkSpelling sends main's request with other spellings of the path, and with fields that
// override the method or the path. Each must be refused while main's budget is spent, or be
// answered otherwise than the endpoint answers.
func checkSpelling(clause *check) hooks {
	c := &spellingCheck{clause}
	return hooks{
		needsRefusals: true,
		tries: func(ctx context.Context, t *tally) error {
			s, err := c.trySpellings(ctx, t)
			if err != nil || s.through {
				return err
			}
			through, ended, err := c.tryDisguises(ctx, t)
			if err != nil || through {
				return err
			}
			switch {
			case s.chance != "":
				c.untested(Unobservable.because("%s was admitted once, and refused when it was repeated: whether the spelling is the cause cannot be seen", s.chance))
			case s.ended || ended:
				c.untested(NeedsMore.because("the window ended before all spellings could be tested"))
			case s.alike > 0:
				c.kept("refused, or answered as something else, with %d spellings; %d more are answered like any path, so they need not be the endpoint",
					s.tried-s.alike, s.alike)
			default:
				c.kept("refused, or answered as something else, with %d spellings", s.tried)
			}
			return nil
		},
	}
}

type spellingCheck struct{ *check }

// A spellingsSeen is what became of the spellings.
type spellingsSeen struct {
	tried, alike   int // alike: answered like any path
	through, ended bool
	chance         string // was admitted once
}

func (c *spellingCheck) trySpellings(ctx context.Context, t *tally) (s spellingsSeen, err error) {
	all := spellings(c.part.endpoints[0].path)
	s.tried = len(all)
	for _, x := range all {
		r := c.plain()
		r.path = x.path
		a, got, err := c.attempt(ctx, t, r)
		if err != nil {
			return s, err
		}
		if got == escaped && !x.same {
			if got, err = c.compareNothing(ctx, r); err != nil {
				return s, err
			}
			if got == another {
				s.alike++
			}
		}
		switch got {
		case escaped:
			c.broken(a, "%s was answered %d as the endpoint answers, while %s is refused", x.path, a.status, c.part.endpoints[0].path)
			s.through = true
			return s, nil
		case windowEnded:
			s.ended = true
		case byChance:
			s.chance = x.path
		}
	}
	return s, nil
}

// A spelling is a way to write a path that some servers take for the same path.
type spelling struct {
	path string
	same bool // it is the same path by RFC 3986, section 6.2.2
}

func spellings(path string) []spelling {
	slash := strings.LastIndexByte(path, '/')
	dir, name := path[:slash], path[slash+1:]
	all := []spelling{{path + "/", false}, {path + "/.", false}, {dir + "/./" + name, true}, {dir + "/x/../" + name, true}, {dir + "/%2e/" + name, true},
		{path + ";v=1", false}, {path + ".json", false}, {path + "?", true}, {path + "?x=1", true}, {path + "%20", false}}
	if name != "" {
		escaped := "%" + hexByte(name[0]) + name[1:]
		all = append(all, spelling{dir + "/" + strings.ToUpper(name), false}, spelling{dir + "/" + strings.ToUpper(name[:1]) + name[1:], false},
			spelling{dir + "/" + escaped, true}, spelling{dir + "/%25" + escaped[1:], false})
	}
	if dir != "" {
		all = append(all, spelling{dir + "//" + name, false}, spelling{dir + "%2f" + name, false}, spelling{dir + "%5c" + name, false},
			spelling{"/" + strings.ToUpper(dir[1:]) + "/" + name, false})
	}
	return slices.DeleteFunc(all, func(s spelling) bool { return s.path == path })
}

func hexByte(c byte) string {
	const digits = "0123456789abcdef"
	return string([]byte{digits[c>>4], digits[c&15]})
}

// compareNothing sends a request that is certainly not the endpoint's. If it is answered just as
// the endpoint answers, a spelling that is answered so need not be the endpoint either.
func (c *spellingCheck) compareNothing(ctx context.Context, r request) (outcome, error) {
	dir := r.path[:strings.LastIndexByte(c.part.endpoints[0].path, '/')]
	r.path = "/weir-verify-nothing" + dir + "/weir-verify-nothing"
	r.beside = true
	a, err := c.send(ctx, r)
	if err != nil {
		return 0, err
	}
	if a.status >= 500 || a.admitted() && c.seen.isLikeServed(a) {
		return another, nil
	}
	return escaped, nil
}

// A disguise is a request that some servers take for another one because of a field that overrides
// the method or the path.
type disguise struct {
	says    string
	request request
	// What it is if the field means nothing, or everything; if answered alike, the disguise shows
	// nothing.
	control request
}

// disguises returns those that change nothing that the endpoint's own requests do not.
func (c *spellingCheck) disguises() []disguise {
	plain, nothing := c.plain(), c.plain()
	nothing.path = plain.path[:strings.LastIndexByte(plain.path, '/')] + "/weir-verify-nothing"
	if c.covers(nothing) {
		nothing.path = "/weir-verify-nothing"
	}
	method := func(name string) request {
		r := c.plain()
		r.method = name
		return r
	}
	other, before := "GET", map[string]string{"POST": "GET", "PUT": "POST", "PATCH": "POST"}[plain.method]
	if plain.method == "GET" {
		other = "HEAD"
	}
	base := strings.TrimSuffix(c.run.options.URL.EscapedPath(), "/")
	const override = "X-HTTP-Method-Override"
	all := []disguise{{override + ": " + other, plain.with(override, other), method(other)}}
	if before != "" {
		all = append(all, disguise{before + " with " + override + ": " + plain.method, method(before).with(override, plain.method), method(before)})
	}
	for _, name := range []string{"X-Original-URL", "X-Rewrite-URL"} {
		all = append(all, disguise{name + ": " + base + nothing.path, plain.with(name, base+nothing.path), nothing},
			disguise{nothing.path + " with " + name + ": " + base + plain.path, nothing.with(name, base+plain.path), nothing})
	}
	return all
}

// tryDisguises reports whether a disguised request was admitted, and whether the window ended.
func (c *spellingCheck) tryDisguises(ctx context.Context, t *tally) (through, ended bool, err error) {
	if through, ended, err = c.tryHead(ctx, t); through || err != nil {
		return through, ended, err
	}
	for _, x := range c.disguises() {
		x.request.beside, x.control.beside = !c.covers(x.request), true
		a, got, err := c.attempt(ctx, t, x.request)
		if err != nil {
			return false, ended, err
		}
		ended = ended || got == windowEnded
		if got != escaped || !c.seen.isLikeServed(a) {
			continue
		}
		control, err := c.send(ctx, x.control)
		if err != nil {
			return false, ended, err
		}
		if control.status >= 500 || control.admitted() && c.seen.isLikeServed(control) || !control.admitted() && !c.covers(x.control) {
			continue
		}
		c.broken(a, "%s was answered %d as the endpoint answers, while %s is refused", x.says, a.status, c.part.endpoints[0])
		return true, ended, nil
	}
	return false, ended, nil
}

// tryHead sends HEAD instead of GET, which a route of GET covers. The answer has no body, so only
// the status is compared.
func (c *spellingCheck) tryHead(ctx context.Context, t *tally) (through, ended bool, err error) {
	r := c.plain()
	if r.method != http.MethodGet {
		return false, false, nil
	}
	r.method = http.MethodHead
	if !c.covers(r) {
		return false, false, nil
	}
	a, got, err := c.attempt(ctx, t, r)
	if err != nil || got != escaped || c.seen.served == nil || a.status != c.seen.served.status || a.status == unauthenticatedStatus(c.seen.responses) {
		return false, got == windowEnded, err
	}
	c.broken(a, "HEAD %s was answered %d, while GET is refused", r.path, a.status)
	return true, false, nil
}
