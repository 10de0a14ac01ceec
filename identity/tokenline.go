package identity

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// A tokenTable holds the tokens of one version of a file.
type tokenTable struct {
	tokens []StoredToken
	byHash map[TokenHash]uint32 // indexes of tokens
	byID   map[string]uint32
}

// len returns how many tokens the table holds. A nil table holds none.
func (t *tokenTable) len() int {
	if t == nil {
		return 0
	}
	return len(t.tokens)
}

// compare returns how the tokens of other differ from those of t.
func (t *tokenTable) compare(other *tokenTable) TokenFileChange {
	c := TokenFileChange{Tokens: other.len(), Was: t.len()}
	for i := range other.tokens {
		s := &other.tokens[i]
		if old, ok := t.byID[s.ID]; !ok {
			c.Added++
		} else if t.tokens[old] != *s {
			c.Changed++
		}
	}
	c.Removed = c.Was - (c.Tokens - c.Added)
	return c
}

// A TokenFileError is what is wrong with the lines of a token file. No text in it contains anything
// of a line, since a key may have been pasted there.
type TokenFileError struct {
	Problems []TokenProblem // the first maxTokenProblems, in the order of their lines
	More     int            // problems that are left out
}

// A TokenProblem is what is wrong with one line.
type TokenProblem struct {
	Line    int // from 1
	Message string
}

// maxTokenProblems is the max number of problems of a TokenFileError.
const maxTokenProblems = 20

// Error returns the first problem with its line, and how many more there are.
func (e *TokenFileError) Error() string {
	text := fmt.Sprintf("%d: %s", e.Problems[0].Line, e.Problems[0].Message)
	switch more := len(e.Problems) - 1 + e.More; more {
	case 0:
		return text
	case 1:
		return text + "; one more line has a problem"
	default:
		return fmt.Sprintf("%s; %d more lines have problems", text, more)
	}
}

func (e *TokenFileError) add(line int, err error) {
	if len(e.Problems) == maxTokenProblems {
		e.More++
		return
	}
	e.Problems = append(e.Problems, TokenProblem{line, err.Error()})
}

// tokenLine is the form of a line, for errors.
const tokenLine = "a line is: ID SHA256 [workspace=NAME] [plan=NAME] [expires=TIME]"

// maxTokenLine is the max length of a line in bytes.
const maxTokenLine = 64 << 10

// bytesPerToken is about how long a line is, of which 65 bytes are the hash.
const bytesPerToken = 80

// readTokenTable reads lines until r ends, about size bytes. An error about the lines is a
// *TokenFileError.
func readTokenTable(r io.Reader, size int64) (*tokenTable, error) {
	about := int(size / bytesPerToken) // room at once takes half the memory of growing step by step
	t := &tokenTable{
		tokens: make([]StoredToken, 0, about), byHash: make(map[TokenHash]uint32, about), byID: make(map[string]uint32, about),
	}
	var fields []string
	var at []uint32                  // the lines of tokens
	names := make(map[string]string) // workspaces and plans, each kept once
	bad := new(TokenFileError)
	lines, n := bufio.NewScanner(r), 1
	lines.Buffer(nil, maxTokenLine)
	for ; lines.Scan(); n++ {
		line := lines.Text()
		if n == 1 {
			if isUTF16(line) {
				bad.add(n, errors.New("the file is UTF-16: save it as UTF-8"))
				return nil, bad
			}
			line = strings.TrimPrefix(line, "\uFEFF") // a byte order mark, which some editors write
		}
		fields = slices.AppendSeq(fields[:0], strings.FieldsSeq(line))
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		s, err := parseStored(fields)
		if err == nil {
			err = t.checkTwice(&s, at)
		}
		if err != nil {
			bad.add(n, err)
			continue
		}
		s.ID = strings.Clone(s.ID) // it is a part of the line
		s.Workspace, s.Plan = shared(names, s.Workspace), shared(names, s.Plan)
		i := uint32(len(t.tokens))
		t.byID[s.ID], t.byHash[s.Hash] = i, i
		t.tokens, at = append(t.tokens, s), append(at, uint32(n))
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		bad.add(n, fmt.Errorf("the line has over %d bytes: %s", maxTokenLine, tokenLine))
	} else if err != nil {
		return nil, err
	}
	if len(bad.Problems) > 0 {
		return nil, bad
	}
	return t, nil
}

// checkTwice returns an error if the table has the id or the hash of s already. at are the lines of
// its tokens.
func (t *tokenTable) checkTwice(s *StoredToken, at []uint32) error {
	if i, twice := t.byID[s.ID]; twice {
		return fmt.Errorf("the id is that of line %d: each token has an id of its own", at[i])
	}
	if i, twice := t.byHash[s.Hash]; twice {
		return fmt.Errorf("the hash is that of line %d: a token has one line, or it would have two budgets", at[i])
	}
	return nil
}

// isUTF16 reports whether a file that begins with a line is UTF-16, as some shells write it.
func isUTF16(line string) bool {
	return strings.HasPrefix(line, "\xFF\xFE") || strings.HasPrefix(line, "\xFE\xFF")
}

// shared returns the one copy of a name.
func shared(names map[string]string, name string) string {
	if name == "" {
		return ""
	}
	s, ok := names[name]
	if !ok {
		s = strings.Clone(name)
		names[s] = s
	}
	return s
}

// parseStored parses the words of a line. Its errors contain nothing of the line: each word may be
// a key that was pasted there, or a part of one.
func parseStored(words []string) (StoredToken, error) {
	if len(words) < 2 {
		return StoredToken{}, fmt.Errorf("it has only one word: %s", tokenLine)
	}
	t := StoredToken{ID: words[0]}
	if err := CheckTokenID(t.ID); err != nil {
		return StoredToken{}, err
	}
	digits := words[1]
	if len(digits) != hex.EncodedLen(len(t.Hash)) {
		return StoredToken{}, fmt.Errorf("the hash has %d characters: the SHA-256 of the whole token is needed, 64 hex digits", len(digits))
	}
	var ascii [2 * len(t.Hash)]byte
	copy(ascii[:], digits)
	if _, err := hex.Decode(t.Hash[:], ascii[:]); err != nil {
		return StoredToken{}, errors.New("the hash is not hex: the SHA-256 of the whole token is needed, 64 hex digits")
	}
	for i, word := range words[2:] {
		name, value, ok := strings.Cut(word, "=")
		if !ok {
			return StoredToken{}, fmt.Errorf("word %d has no \"=\": %s", i+3, tokenLine)
		}
		if err := t.setAttribute(name, value); errors.Is(err, errNoAttribute) {
			return StoredToken{}, fmt.Errorf("word %d begins with no attribute that is known: %w", i+3, err)
		} else if err != nil {
			return StoredToken{}, err
		}
	}
	return t, t.checkIDIsNoKey()
}

// checkIDIsNoKey returns an error if the public id of t is the key itself.
func (t *StoredToken) checkIDIsNoKey() error {
	if sha256.Sum256([]byte(t.ID)) != t.Hash {
		return nil
	}
	return errors.New("id is the key itself: an id is public, and commands, logs and the dashboard show it; give the key another name, such as its owner's")
}

// Line returns the line that a TokenFile has for the token, without a line break. It returns an
// error if the line would be rejected.
func (t *StoredToken) Line() (string, error) {
	if err := CheckTokenID(t.ID); err != nil {
		return "", err
	}
	if err := t.checkIDIsNoKey(); err != nil {
		return "", err
	}
	line := t.ID + " " + hex.EncodeToString(t.Hash[:])
	var parsed StoredToken
	for _, a := range []struct{ name, value string }{{"workspace", t.Workspace}, {"plan", t.Plan}} {
		if a.value == "" {
			continue
		}
		if err := parsed.setAttribute(a.name, a.value); err != nil {
			return "", err
		}
		line += " " + a.name + "=" + a.value
	}
	if !t.Expires.IsZero() {
		line += " expires=" + t.Expires.UTC().Format(time.RFC3339)
	}
	return line, nil
}

var errNoAttribute = errors.New("workspace=, plan= and expires= are allowed, in lower case")

// setAttribute sets the attribute that one word of a line has. Its errors contain nothing of either
// argument but an attribute that is known.
func (t *StoredToken) setAttribute(name, value string) error {
	switch name {
	case "workspace":
		return setName(&t.Workspace, name, value)
	case "plan":
		if value == "by" {
			return fmt.Errorf("plan= is the word by, which has another meaning in a policy: %s, and not the word by", nameRule)
		}
		return setName(&t.Plan, name, value)
	case "expires":
		if !t.Expires.IsZero() {
			return errors.New("expires= occurs twice")
		}
		var err error
		t.Expires, err = ParseExpires(value)
		return err
	}
	return errNoAttribute
}

func setName(to *string, attribute, value string) error {
	if *to != "" {
		return fmt.Errorf("%s= occurs twice", attribute)
	}
	if err := checkPublicName(value); err != nil {
		return fmt.Errorf("%s= %w", attribute, err)
	}
	*to = value
	return nil
}

// maxTokenID is the max length of a token's public id.
const maxTokenID = 64

// CheckTokenID returns what is wrong with a token's public id: it has 1 to 64 letters, digits,
// dots, dashes and underscores, and does not begin with wpt_, as a whole token does. The error
// contains nothing of the id, which may be a key in the wrong place.
func CheckTokenID(id string) error {
	if strings.HasPrefix(id, tokenPrefix) {
		return errors.New("the id begins with wpt_, as a whole token does: a public id is needed, such as the part between the two underscores")
	}
	if err := checkPublicName(id); err != nil {
		return fmt.Errorf("the id %w", err)
	}
	return nil
}

// nameRule is what a public name may be, for errors.
const nameRule = "1 to 64 letters, digits, dots, dashes or underscores are allowed"

// checkPublicName returns what is wrong with the name of a token, a workspace or a plan. The error
// continues a sentence that begins with what the name is, and contains nothing of it.
func checkPublicName(s string) error {
	switch {
	case isPublicName(s) && !strings.HasPrefix(s, tokenPrefix):
		return nil
	case s == "":
		return fmt.Errorf("is empty: %s", nameRule)
	case strings.HasPrefix(s, tokenPrefix):
		return errors.New("begins with wpt_, as a whole token does: a name that is no secret is needed")
	}
	at, length := 0, 0 // in characters, from 1
	for _, r := range s {
		if length++; at == 0 && (r >= utf8.RuneSelf || !isPublicByte(byte(r))) {
			at = length
		}
	}
	if at == 0 {
		return fmt.Errorf("has %d characters: %s", length, nameRule)
	}
	return fmt.Errorf("has a character that is not allowed, number %d of %d: %s", at, length, nameRule)
}

func isPublicName(s string) bool {
	if s == "" || len(s) > maxTokenID {
		return false
	}
	for i := range len(s) {
		if !isPublicByte(s[i]) {
			return false
		}
	}
	return true
}

func isPublicByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '-' || c == '_'
}

// ParseExpires parses when a token expires: a time as in RFC 3339, 2027-01-31T18:00:00Z, or a date,
// which is the beginning of that day in UTC. The token is refused from then on. The error contains
// nothing of s, which may be a key in the wrong place.
func ParseExpires(s string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if at, err := time.Parse(layout, s); err == nil && at.Year() > 1 {
			return at.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("expires= %s: expected a date, 2027-01-31, or a time with its zone, 2027-01-31T18:00:00Z", expiresProblem(s))
}

// expiresProblem returns why s is no time, and contains nothing of it.
func expiresProblem(s string) string {
	form := strings.Map(func(r rune) rune {
		if '1' <= r && r <= '9' {
			return '0'
		}
		return r
	}, s)
	switch rest, isTime := strings.CutPrefix(form, "0000-00-00T00:00:00"); {
	case isTime && rest == "":
		return "is a time without a zone"
	case isTime, form == "0000-00-00":
		return "has the form of a time, and there is none such, as on 2027-02-30"
	}
	return fmt.Sprintf("has %d characters and is no time", utf8.RuneCountInString(s))
}
