package identity

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// foreignKey is a key that another service has made.
const foreignKey = "sk_live_51H8x/+=~!$4711"

// A keyedFile is a watchedFile and a Resolver that goes by it and by its clock.
type keyedFile struct {
	*watchedFile
	resolver *Resolver
}

func keyed(t *testing.T, content string) *keyedFile {
	w := watch(t, content)
	r, err := New(Options{Tokens: w.TokenFile, Now: func() time.Time { return w.clock }})
	if err != nil {
		t.Fatal(err)
	}
	return &keyedFile{w, r}
}

// sends returns the claims of a request with a key as its bearer token.
func (f *keyedFile) sends(key string) (TokenClaims, error) {
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Authorization", "Bearer "+key)
	var c Caller
	f.resolver.Start(&c, &HTTPRequest{Request: r})
	return c.Token()
}

// is checks whether foreignKey is accepted; want is the error, empty if it is accepted.
func (f *keyedFile) is(when, want string) {
	f.t.Helper()
	got := ""
	if _, err := f.sends(foreignKey); err != nil {
		got = err.Error()
	}
	if got != want {
		f.t.Errorf("%s: error %q, want %q", when, got, want)
	}
}

func lineOf(id, key, attributes string) string {
	return fmt.Sprintf("%s %x %s\n", id, sha256.Sum256([]byte(key)), attributes)
}

const (
	refusedText = "it is unknown or was revoked"
	expiredText = "it has expired"
)

func TestAKeyOfAnyFormIsCountedByTheIDOfItsLine(t *testing.T) {
	f := keyed(t, "acme "+"00"+strings.Repeat("11", 31)+"\n"+lineOf("Ada.L-1_x", foreignKey, "expires=2027-01-31T18:00:00+02:00 plan=gold workspace=w-1"))
	want := TokenClaims{ID: "Ada.L-1_x", Workspace: "w-1", Plan: "gold", Expires: time.Date(2027, 1, 31, 16, 0, 0, 0, time.UTC)}
	for range 2 { // the second from the cache
		if got, err := f.sends(foreignKey); err != nil || got != want {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	}
	if _, err := f.sends(foreignKey + "x"); err == nil || err.Error() != refusedText {
		t.Errorf("another key: error %v", err)
	}
	if _, err := f.sends("Ada.L-1_x"); err == nil {
		t.Error("the id is accepted as a key")
	}
}

// A key that expires is refused at that second, although it is in the cache, and accepted again
// once its line has a later time.
func TestAnExpiredKeyIsRefusedAtThatSecond(t *testing.T) {
	f := keyed(t, lineOf("acme", foreignKey, "expires=2026-03-01T12:00:10Z"))
	f.is("at first", "")
	f.clock = f.clock.Add(10*time.Second - 1)
	f.is("just before", "")
	f.clock = f.clock.Add(1)
	f.is("then", expiredText)
	f.is("again", expiredText)
	f.write(lineOf("acme", foreignKey, "expires=2026-03-02"), time.Minute)
	f.clock = f.clock.Add(fileLook)
	f.is("extended", "")
	f.clock = time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC).Add(-1)
	f.is("on the last day", "")
	f.clock = f.clock.Add(1)
	f.is("when the named day begins", expiredText)
}

// It is within a second also for a key in the cache (D15).
func TestARemovedKeyStopsWithinASecond(t *testing.T) {
	f := keyed(t, lineOf("acme", foreignKey, ""))
	f.is("at first", "")
	// Its owner has another key now.
	f.write(lineOf("acme", strings.ToUpper(foreignKey), ""), time.Minute)
	f.clock = f.clock.Add(time.Second)
	f.is("a second later", refusedText)
}

func TestAChangedPlanCountsWithinASecond(t *testing.T) {
	f := keyed(t, lineOf("acme", foreignKey, "plan=free"))
	for _, plan := range []string{"free", "gold", ""} {
		if plan != "" {
			f.write(lineOf("acme", foreignKey, "plan="+plan), time.Minute)
		} else {
			f.write(lineOf("acme", foreignKey, ""), time.Minute)
		}
		f.clock = f.clock.Add(time.Second)
		if got, err := f.sends(foreignKey); err != nil || got.Plan != plan {
			t.Errorf("plan %q, %v, want %q", got.Plan, err, plan)
		}
	}
}

// Weir's own tokens may be in such a file under any id, and keep their checksum.
func TestATokenOfWeirWorksInAFileOfKeys(t *testing.T) {
	token, _, hash, err := NewToken(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	mistyped := token[:20] + "a" + token[21:]
	if mistyped == token {
		mistyped = token[:20] + "b" + token[21:]
	}
	f := keyed(t, "acme "+hex.EncodeToString(hash[:])+"\n"+lineOf("typo", mistyped, ""))
	if got, err := f.sends(token); err != nil || got.ID != "acme" {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := f.sends(mistyped); err == nil || !strings.Contains(err.Error(), "checksum") {
		t.Errorf("a mistyped token: error %v", err)
	}
}

func TestAKeyHas16To8192VisibleCharacters(t *testing.T) {
	for _, c := range []struct {
		name, key, want string // want is a part of the error; empty: it is a key
	}{
		{"16", strings.Repeat("k", 16), ""},
		{"15", strings.Repeat("k", 15), "15 characters: expected 16 to 8192"},
		{"8192", strings.Repeat("k", 8192), ""},
		{"8193", strings.Repeat("k", 8193), "8193 characters"},
		{"every visible character", visible(), ""},
		{"a blank", strings.Repeat("k", 16) + " k", "visible ASCII"},
		{"a line break", strings.Repeat("k", 16) + "\n", "visible ASCII"},
		{"delete", strings.Repeat("k", 16) + "\x7f", "visible ASCII"},
		{"an umlaut", strings.Repeat("k", 16) + "ü", "visible ASCII"},
		{"an incomplete token of Weir", "wpt_kkkkkkkkkkkkkkkkkkk", "incomplete"},
	} {
		t.Run(c.name, func(t *testing.T) {
			hash, err := HashKey(c.key)
			if c.want == "" && (err != nil || hash != sha256.Sum256([]byte(c.key))) {
				t.Errorf("%x, %v", hash, err)
			}
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "kkk")) {
				t.Errorf("error %v, want …%s… without the key", err, c.want)
			}
		})
	}
}

func visible() string {
	var b []byte
	for c := byte('!'); c <= '~'; c++ {
		b = append(b, c)
	}
	return string(b)
}

func TestTheLineOfATokenIsReadAsItWasWritten(t *testing.T) {
	at := time.Date(2027, 1, 31, 18, 0, 0, 0, time.FixedZone("", 3600))
	for _, want := range []StoredToken{
		{ID: "acme"},
		{ID: "a", Workspace: "w", Plan: "gold", Expires: at.UTC(), Hash: sha256.Sum256(nil)},
	} {
		line, err := want.Line()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := parseStored(strings.Fields(line)); err != nil || got != want {
			t.Errorf("%q is read as %+v, %v", line, got, err)
		}
	}
	for _, bad := range []StoredToken{{}, {ID: "a b"}, {ID: "a", Plan: "gold expires=2020-01-01"}, {ID: "a", Workspace: "a\nb"}} {
		if line, err := bad.Line(); err == nil {
			t.Errorf("%+v has the line %q", bad, line)
		}
	}
}

// The line of a whole token, or of a key in place of its hash, must not print it.
func TestALineThatHoldsAKeyDoesNotPrintIt(t *testing.T) {
	for _, line := range []string{foreignKey, foreignKey + " " + foreignKey, "acme " + foreignKey, "acme " + hashA + " " + foreignKey, foreignKey + " " + hashA} {
		_, err := readTokenTable(strings.NewReader(line), 0)
		if err == nil || strings.Contains(err.Error(), foreignKey[:12]) {
			t.Errorf("%q: error %v", line, err)
		}
	}
}

// A million keys take a second to read. No caller waits for that if the last version was in force a
// moment ago, and a later one sees the change.
func TestNoCallerOfABusyServerWaitsForALargeFile(t *testing.T) {
	var content strings.Builder
	content.WriteString(lineOf("acme", foreignKey, ""))
	for i := range manyTokens {
		content.WriteString(lineOf(fmt.Sprint(i), fmt.Sprint("key", i), ""))
	}
	f := keyed(t, content.String())
	f.is("at first", "")
	f.write(strings.Replace(content.String(), "acme", "#acme", 1), time.Minute)
	f.clock = f.clock.Add(readPatience)
	f.is("while the new version is read", "")
	f.mu.Lock() // its reader holds it
	looked := f.looked
	f.mu.Unlock()
	if !looked.Equal(f.clock) {
		t.Errorf("the file was last read at %v, want %v", looked, f.clock)
	}
	f.clock = f.clock.Add(recheckMust)
	f.is("afterwards", refusedText)

	// After a pause the last version is too old to go by.
	f.write(content.String(), time.Minute)
	f.clock = f.clock.Add(time.Hour)
	f.is("added during an hour without requests", "")
	f.write(strings.Replace(content.String(), "acme", "#acme", 1), 30*time.Second)
	f.clock = f.clock.Add(time.Hour)
	f.is("removed during an hour without requests", refusedText)
}

func FuzzALineOfAFileOfKeys(f *testing.F) {
	f.Add(lineA)
	f.Add("acme " + hashA + " plan=gold expires=2027-01-31 workspace=w")
	f.Fuzz(func(t *testing.T, content string) {
		table, err := readTokenTable(strings.NewReader(content), int64(len(content)))
		if err != nil {
			return
		}
		if len(table.byHash) != len(table.tokens) || len(table.byID) != len(table.tokens) {
			t.Fatalf("%d tokens, %d hashes, %d ids", len(table.tokens), len(table.byHash), len(table.byID))
		}
		for _, s := range table.tokens {
			if CheckTokenID(s.ID) != nil {
				t.Fatalf("id %q", s.ID)
			}
		}
	})
}

// BenchmarkAMillionKeys reads a file of a million keys.
func BenchmarkAMillionKeys(b *testing.B) {
	var content strings.Builder
	for i := range 1_000_000 {
		content.WriteString(lineOf(fmt.Sprintf("customer-%d", i), fmt.Sprint(i), "plan=gold"))
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := readTokenTable(strings.NewReader(content.String()), int64(content.Len())); err != nil {
			b.Fatal(err)
		}
	}
}
