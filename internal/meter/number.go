package meter

import "math"

// number is a number that a scanner reads.
type number struct {
	isMember bool
	value    int64 // of the member
}

func (s *scanner) beginNumber(c byte, isMember bool) {
	s.isMember = isMember
	switch c {
	case '-':
		s.state = afterMinus
	case '0':
		s.state = afterZero
	default:
		s.state = inDigits
	}
	if isMember {
		s.value = int64(c - '0') // a minus is not told
	}
}

// stepNumber reads one byte in a number, or the one after it.
func (s *scanner) stepNumber(c byte) {
	isDigit := '0' <= c && c <= '9'
	switch state := s.state; {
	case isDigit && state == afterMinus && c == '0':
		s.state = afterZero
	case isDigit && state == afterMinus:
		s.state = inDigits
	case isDigit && (state == afterPoint || state == inFraction):
		s.state = inFraction
	case isDigit && state >= afterE:
		s.state = inExponent
	case c == '.' && (state == afterZero || state == inDigits):
		s.state, s.invalid = afterPoint, s.invalid || s.isMember
	case (c == 'e' || c == 'E') && (state == afterZero || state == inDigits || state == inFraction):
		s.state, s.invalid = afterE, s.invalid || s.isMember
	case (c == '+' || c == '-') && state == afterE:
		s.state = afterSign
	case state == afterMinus || state == afterPoint || state == afterE || state == afterSign || isDigit:
		s.state = failed
	default:
		s.state = afterValue
		s.step(c)
	}
}

// readDigits reads digits, and returns their number.
func (s *scanner) readDigits(p []byte) int {
	for i, c := range p {
		if c < '0' || c > '9' {
			return i
		}
		if s.isMember && s.state == inDigits {
			s.addDigit(c)
		}
	}
	return len(p)
}

func (s *scanner) addDigit(c byte) {
	if s.value = s.value*10 + int64(c-'0'); s.value > math.MaxInt32 {
		s.value, s.invalid = math.MaxInt32, true
	}
}
