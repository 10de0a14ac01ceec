package headers

import (
	"fmt"
	"strconv"
	"strings"
)

// A Member is one window in the IETF fields: RateLimit-Policy has its Quota and Window, RateLimit
// has its Remaining and Reset.
type Member struct {
	Name      string // printable ASCII
	Quota     int64  // q: units allowed in the window
	Window    int64  // w: its length in seconds; 0: absent
	Remaining int64  // r: units still available
	Reset     int64  // t: seconds until more are available; 0: now, or absent
	// Concurrent is qu="concurrent-requests": the quota is on requests at the same time, so it has
	// no Window, and no Reset is written. Without it the quota unit is requests, or one that no
	// field is known for.
	Concurrent bool
}

// concurrentRequests is a quota unit of the draft, section 3.1.2.
const concurrentRequests = "concurrent-requests"

// maxInteger is the largest integer of a structured field (RFC 9651, section 3.3.1).
const maxInteger = 999_999_999_999_999

// maxMembers is the max number of members that are read, since anyone can send a list.
const maxMembers = 64

// AppendPolicy appends the value of RateLimit-Policy: "name";q=1000;w=60, one member for each
// window, and ;qu="concurrent-requests" in place of w for one that is Concurrent. Numbers are
// clamped to 0 and the largest integer of a structured field. A byte of a name that is not
// printable ASCII is written as "?".
func AppendPolicy(dst []byte, members []Member) []byte {
	for i := range members {
		m := &members[i]
		dst = appendName(dst, i, m.Name)
		dst = appendParameter(dst, ";q=", m.Quota)
		if m.Concurrent {
			dst = append(dst, `;qu="`+concurrentRequests+`"`...)
		} else if m.Window > 0 {
			dst = appendParameter(dst, ";w=", m.Window)
		}
	}
	return dst
}

// AppendLimits appends the value of RateLimit: "name";r=999;t=42, one member for each window, by
// the rules of AppendPolicy.
func AppendLimits(dst []byte, members []Member) []byte {
	for i := range members {
		m := &members[i]
		dst = appendName(dst, i, m.Name)
		dst = appendParameter(dst, ";r=", m.Remaining)
		if !m.Concurrent {
			dst = appendParameter(dst, ";t=", m.Reset)
		}
	}
	return dst
}

func appendName(dst []byte, index int, name string) []byte {
	if index > 0 {
		dst = append(dst, ", "...)
	}
	dst = append(dst, '"')
	for i := range len(name) {
		switch c := name[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < ' ' || c > '~':
			dst = append(dst, '?')
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}

func appendParameter(dst []byte, name string, v int64) []byte {
	return AppendInt(append(dst, name...), min(v, maxInteger))
}

// ParsePolicy reads the lines of RateLimit-Policy: Name, Quota, Window and Concurrent of each
// member. Without lines there are no members. It ignores unknown parameters, as the draft
// requires. Its errors are *FieldError: for a value that is not a list of strings (RFC 9651), a
// missing q, a number out of range, a name that occurs twice, and more than 64 members.
func ParsePolicy(lines []string) ([]Member, error) {
	return parseMembers(Policy, lines, func(m *Member, p parameters) error {
		var err error
		if m.Quota, err = p.required("q"); err != nil {
			return err
		}
		m.Window, err = p.optional("w", 1)
		if m.Concurrent = p.qu.kind == stringItem && p.qu.text == concurrentRequests; m.Concurrent {
			m.Window = 0
		}
		return err
	})
}

// ParseLimits reads the lines of RateLimit: Name, Remaining and Reset of each member, by the rules
// of ParsePolicy. r is required.
func ParseLimits(lines []string) ([]Member, error) {
	return parseMembers(RateLimit, lines, func(m *Member, p parameters) error {
		var err error
		if m.Remaining, err = p.required("r"); err != nil {
			return err
		}
		m.Reset, err = p.optional("t", 0)
		return err
	})
}

func parseMembers(field string, lines []string, fill func(*Member, parameters) error) ([]Member, error) {
	value := strings.Join(lines, ",")
	refuse := func(format string, args ...any) error {
		return &FieldError{Field: field, Value: value, Problem: "is refused: " + fmt.Sprintf(format, args...)}
	}
	s := scanner{text: strings.Trim(value, " ")}
	if s.text == "" {
		return nil, nil
	}
	var members []Member
	for {
		if len(members) == maxMembers {
			return nil, refuse("it has more than %d members", maxMembers)
		}
		item, err := s.bareItem()
		if err != nil {
			return nil, refuse("%v", err)
		}
		if item.kind != stringItem {
			return nil, refuse("a member begins with a name in quotes")
		}
		known, err := s.parameters()
		if err != nil {
			return nil, refuse("%v", err)
		}
		for i := range members {
			if members[i].Name == item.text {
				return nil, refuse("the member %q occurs twice", item.text)
			}
		}
		m := Member{Name: item.text}
		if err := fill(&m, known); err != nil {
			return nil, refuse("member %q: %v", m.Name, err)
		}
		members = append(members, m)
		more, err := s.comma()
		if err != nil {
			return nil, refuse("%v", err)
		}
		if !more {
			return members, nil
		}
	}
}

// parameters are the known parameters of one member.
type parameters struct {
	q, qu, w, r, t item
}

func (p *parameters) named(name string) *item {
	switch name {
	case "q":
		return &p.q
	case "qu":
		return &p.qu
	case "w":
		return &p.w
	case "r":
		return &p.r
	case "t":
		return &p.t
	}
	return nil
}

func (p *parameters) required(name string) (int64, error) {
	if p.named(name).kind == noItem {
		return 0, fmt.Errorf("its %s is missing", name)
	}
	return p.optional(name, 0)
}

func (p *parameters) optional(name string, minimum int64) (int64, error) {
	i := p.named(name)
	if i.kind == noItem {
		return 0, nil
	}
	if i.kind != integerItem || i.number < minimum {
		return 0, fmt.Errorf("its %s is %s, and a whole number from %d on is allowed", name, strconv.Quote(i.text), minimum)
	}
	return i.number, nil
}
