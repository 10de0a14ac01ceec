package meter

// A scanner reads one JSON text (RFC 8259) in pieces of any length, and finds the member at a path.
// It accepts the objects that encoding/json accepts, also as to their depth.
type scanner struct {
	names []string // of the path

	state  state
	depth  int                          // of the objects and arrays that are open
	lists  [(maxDepth + 63) / 64]uint64 // a bit for each of them: it is an array
	onPath int                          // the number of the outermost that are on the path

	seen uint16 // a bit for each name of the path that its object has had
	next place  // what the value is that comes next
	rest string // of a literal
	quoted
	number
	like lookalike

	found   bool // the text has the member, and it is not null
	invalid bool // it is no number that tells, or an object has a name of the path twice
}

const maxDepth = 10_000

// A place is what a value is to the path.
type place uint8

const (
	elsewhere place = iota
	onTheWay        // the value of a name of the path
	atTheEnd        // the value of the last one
)

// A state is what a scanner expects.
type state uint8

const (
	beforeText state = iota // an object
	beforeValue
	beforeFirst // of an array, or its end
	beforeName
	beforeFirstName // of an object, or its end
	beforeColon
	afterValue // a comma, or an end
	afterText  // blanks alone
	inString
	inEscape // after a backslash
	inHex    // after \u
	inLiteral
	afterMinus // and the other states of numbers
	afterZero
	inDigits
	afterPoint
	inFraction
	afterE
	afterSign
	inExponent
	failed // the text is not valid, or it is no object
)

func (s *scanner) reset() {
	s.state, s.depth, s.onPath, s.seen, s.next = beforeText, 0, 0, 0, elsewhere
	s.found, s.invalid = false, false
}

// isWhole reports whether the text is complete. Only blanks may follow.
func (s *scanner) isWhole() bool { return s.state == afterText }

// units returns the member.
func (s *scanner) units() (n int64, ok bool) {
	if !s.isWhole() || !s.found || s.invalid {
		return 0, false
	}
	return s.value, true
}

func (s *scanner) write(p []byte) {
	for i := 0; i < len(p); {
		switch s.state {
		case failed:
			return
		case inString:
			i += s.readString(p[i:])
		case inDigits, inFraction:
			if n := s.readDigits(p[i:]); n > 0 {
				i += n
				continue
			}
			s.stepNumber(p[i])
			i++
		default:
			s.step(p[i])
			i++
		}
	}
}

// step reads one byte that is no plain character of a string.
func (s *scanner) step(c byte) {
	switch {
	case s.state <= afterText:
		if c > ' ' {
			s.stepToken(c)
		} else if c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			s.state = failed
		}
	case s.state >= afterMinus:
		s.stepNumber(c)
	case s.state == inLiteral:
		s.stepLiteral(c)
	case s.state == inEscape:
		s.stepEscape(c)
	default:
		s.stepHex(c)
	}
}

// stepToken reads the first byte of a token.
func (s *scanner) stepToken(c byte) {
	switch s.state {
	case afterValue:
		s.stepAfter(c)
		return
	case beforeColon:
		if c == ':' {
			s.state = beforeValue
			return
		}
	case beforeFirst, beforeValue:
		if c != ']' || s.state == beforeValue {
			s.beginValue(c)
		} else {
			s.end()
		}
		return
	case beforeFirstName, beforeName:
		if c == '"' {
			s.beginName(s.onPath == s.depth)
			return
		}
		if c == '}' && s.state == beforeFirstName {
			s.end()
			return
		}
	case beforeText:
		if c == '{' {
			s.next = onTheWay
			s.beginValue(c)
			return
		}
	}
	s.state = failed
}

// stepAfter reads a byte after a value.
func (s *scanner) stepAfter(c byte) {
	list := s.isList()
	switch {
	case c == ',' && list:
		s.state = beforeValue
	case c == ',':
		s.state = beforeName
	case c == ']' && list, c == '}' && !list:
		s.end()
	default:
		s.state = failed
	}
}

// beginValue reads the first byte of a value.
func (s *scanner) beginValue(c byte) {
	at := s.next
	s.next = elsewhere
	if at == atTheEnd && c != 'n' {
		s.found = true
		s.invalid = s.invalid || c < '0' || c > '9'
	}
	switch {
	case c == '{':
		s.begin(beforeFirstName, 0)
		if at == onTheWay && s.state != failed {
			s.onPath = s.depth
			s.seen &^= 1 << s.depth
		}
	case c == '[':
		s.begin(beforeFirst, 1)
	case c == '"':
		s.beginString()
	case c == '-' || '0' <= c && c <= '9':
		s.beginNumber(c, at == atTheEnd)
	case c == 't':
		s.state, s.rest = inLiteral, "rue"
	case c == 'f':
		s.state, s.rest = inLiteral, "alse"
	case c == 'n':
		s.state, s.rest = inLiteral, "ull"
	default:
		s.state = failed
	}
}

// begin opens an object, or an array if list is 1.
func (s *scanner) begin(then state, list uint64) {
	if s.depth == maxDepth {
		s.state = failed
		return
	}
	word, bit := &s.lists[s.depth/64], s.depth%64
	*word = *word&^(1<<bit) | list<<bit
	s.depth++
	s.state = then
}

func (s *scanner) isList() bool {
	last := s.depth - 1
	return s.lists[last/64]>>(last%64)&1 != 0
}

// end closes the innermost object or array.
func (s *scanner) end() {
	s.depth--
	s.onPath = min(s.onPath, s.depth)
	s.state = afterValue
	if s.depth == 0 {
		s.state = afterText
	}
}

func (s *scanner) stepLiteral(c byte) {
	if c != s.rest[0] {
		s.state = failed
		return
	}
	if s.rest = s.rest[1:]; s.rest == "" {
		s.state = afterValue
	}
}

// endName is called after the string of a name. The name is one of the path if it was compared to
// the end.
func (s *scanner) endName() {
	s.state = beforeColon
	if !s.isCompared || s.compared != len(s.names[s.depth-1]) {
		if s.like.isCompared && s.like.is(s.names[s.depth-1]) {
			s.found, s.invalid = true, true
		}
		return
	}
	bit := uint16(1) << s.depth
	if s.seen&bit != 0 {
		s.found, s.invalid = true, true
	}
	s.seen |= bit
	if s.next = onTheWay; s.depth == len(s.names) {
		s.next = atTheEnd
	}
}
