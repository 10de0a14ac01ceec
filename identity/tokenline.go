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

	"github.com/weirlimit/weir"
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

// tokenLine is the form of a line, for errors.
const tokenLine = "a line is: ID SHA256 [workspace=NAME] [plan=NAME] [expires=TIME]"

// maxTokenLine is the max length of a line in bytes.
const maxTokenLine = 64 << 10

// bytesPerToken is about how long a line is, of which 65 bytes are the hash.
const bytesPerToken = 80

// readTokenTable reads lines until r ends, about size bytes. An error begins with the number of its
// line.
func readTokenTable(r io.Reader, size int64) (*tokenTable, error) {
	about := int(size / bytesPerToken) // room at once takes half the memory of growing step by step
	t := &tokenTable{
		tokens: make([]StoredToken, 0, about), byHash: make(map[TokenHash]uint32, about), byID: make(map[string]uint32, about),
	}
	var fields []string
	var at []uint32                  // the lines of tokens
	names := make(map[string]string) // workspaces and plans, each kept once
	lines, n := bufio.NewScanner(r), 1
	lines.Buffer(nil, maxTokenLine)
	for ; lines.Scan(); n++ {
		fields = slices.AppendSeq(fields[:0], strings.FieldsSeq(lines.Text()))
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		s, err := parseStored(fields)
		if err != nil {
			return nil, fmt.Errorf("%d: %w", n, err)
		}
		if i, twice := t.byID[s.ID]; twice {
			return nil, fmt.Errorf("%d: the id is that of line %d: each token has an id of its own", n, at[i])
		}
		if i, twice := t.byHash[s.Hash]; twice {
			return nil, fmt.Errorf("%d: the hash is that of line %d: a token has one line, or it would have two budgets", n, at[i])
		}
		s.ID = strings.Clone(s.ID) // it is a part of the line
		s.Workspace, s.Plan = shared(names, s.Workspace), shared(names, s.Plan)
		i := uint32(len(t.tokens))
		t.byID[s.ID], t.byHash[s.Hash] = i, i
		t.tokens, at = append(t.tokens, s), append(at, uint32(n))
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, fmt.Errorf("%d: the line has over %d bytes: %s", n, maxTokenLine, tokenLine)
	} else if err != nil {
		return nil, err
	}
	return t, nil
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

// parseStored parses the words of a line. Its errors contain little of an id and of a hash: either
// may be a whole token that was pasted there.
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
		if err := t.setAttribute(name, value); err != nil {
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

// setAttribute sets the attribute that one word of a line has.
func (t *StoredToken) setAttribute(name, value string) error {
	switch name {
	case "workspace":
		return setName(&t.Workspace, name, value)
	case "plan":
		if !weir.IsPlanName(value) {
			return fmt.Errorf("plan=%.10q: expected 1 to %d letters, digits, dots, dashes or underscores, and not the word by", value, maxTokenID)
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
	return fmt.Errorf("attribute %.10q: workspace=, plan= and expires= are allowed", name)
}

func setName(to *string, attribute, value string) error {
	if *to != "" {
		return fmt.Errorf("%s= occurs twice", attribute)
	}
	if !isPublicName(value) || strings.HasPrefix(value, tokenPrefix) { // it may be a whole token
		return fmt.Errorf("%s=%.10q: expected 1 to %d letters, digits, dots, dashes or underscores", attribute, value, maxTokenID)
	}
	*to = value
	return nil
}

// maxTokenID is the max length of a token's public id.
const maxTokenID = 64

// CheckTokenID returns what is wrong with a token's public id: it has 1 to 64 letters, digits,
// dots, dashes and underscores, and does not begin with wpt_, as a whole token does.
func CheckTokenID(id string) error {
	if strings.HasPrefix(id, tokenPrefix) {
		return errors.New("the id begins with wpt_, as a whole token does: a public id is needed, such as the part between the two underscores")
	}
	if !isPublicName(id) {
		return fmt.Errorf("id %.10q of %d characters: expected 1 to %d letters, digits, dots, dashes or underscores", id, len(id), maxTokenID)
	}
	return nil
}

func isPublicName(s string) bool {
	if s == "" || len(s) > maxTokenID {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '-', c == '_':
		default:
			return false
		}
	}
	return true
}

// ParseExpires parses when a token expires: a time as in RFC 3339, 2027-01-31T18:00:00Z, or a date,
// which is the beginning of that day in UTC. The token is refused from then on.
func ParseExpires(s string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if at, err := time.Parse(layout, s); err == nil && at.Year() > 1 {
			return at.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("expires=%.40q: expected a date, 2027-01-31, or a time with its zone, 2027-01-31T18:00:00Z", s)
}
