package identity

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const (
	idA, idB = "aaaaaaaaaa", "bbbbbbbbbb"
	hashA    = "1111111111111111111111111111111111111111111111111111111111111111"
	lineA    = idA + " 1111111111111111111111111111111111111111111111111111111111111111 workspace=acme\n"
	lineB    = idB + " 2222222222222222222222222222222222222222222222222222222222222222\n"
)

// A watchedFile is a TokenFile with its own clock. The test sets the file's times.
type watchedFile struct {
	*TokenFile
	t        *testing.T
	clock    time.Time
	reported []string
	changes  []TokenFileChange
}

func watch(t *testing.T, content string) *watchedFile {
	w := &watchedFile{t: t, clock: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, w.clock.Add(-time.Hour), w.clock.Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	f, err := OpenTokenFile(path, TokenFileOptions{
		Failed:  func(err error) { w.reported = append(w.reported, err.Error()); w.Len() },
		Changed: func(c TokenFileChange) { w.changes = append(w.changes, c); w.Len() },
	})
	if err != nil {
		t.Fatal(err)
	}
	f.now = func() time.Time { return w.clock }
	f.looked = w.clock
	f.checked.Store(w.clock.UnixNano())
	w.TokenFile = f
	return w
}

// write replaces the content in place; modified is the age of the file's time.
func (w *watchedFile) write(content string, modified time.Duration) {
	w.t.Helper()
	if err := os.WriteFile(w.path, []byte(content), 0o600); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Chtimes(w.path, time.Time{}, w.clock.Add(-modified)); err != nil {
		w.t.Fatal(err)
	}
}

// holds checks which tokens are valid.
func (w *watchedFile) holds(when string, a, b bool) {
	w.t.Helper()
	for id, want := range map[string]bool{idA: a, idB: b} {
		_, err := w.Lookup(id)
		if err != nil && !errors.Is(err, ErrUnknownToken) || (err == nil) != want {
			w.t.Errorf("%s: the token %s is valid: %v (%v), want %v", when, id, err == nil, err, want)
		}
	}
}

func TestAFileOfTokensIsRead(t *testing.T) {
	w := watch(t, "# ours\n\n  "+strings.ReplaceAll(lineA, " ", "\t ")+"\r\n"+strings.TrimSpace(lineB))
	w.holds("at first", true, true)
	if got, err := w.Lookup(idA); err != nil || got.Workspace != "acme" || got.ID != idA || got.Revoked || hex.EncodeToString(got.Hash[:2]) != "1111" {
		t.Errorf("%+v, %v", got, err)
	}
	if got, _ := w.Lookup(idB); got.Workspace != "" {
		t.Errorf("a workspace %q from nowhere", got.Workspace)
	}
	if w.Len() != 2 {
		t.Errorf("%d tokens", w.Len())
	}
}

func TestATokenFromNewTokenWorksThroughAFile(t *testing.T) {
	token, id, hash, err := NewToken(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	w := watch(t, id+" "+strings.ToUpper(hex.EncodeToString(hash[:]))+"\n")
	if _, err := checkToken(w, token, w.clock); err != nil {
		t.Error(err)
	}
}

// Stores get only ids in our format (D15).
func TestATokenOfOtherCharactersIsRejected(t *testing.T) {
	for _, id := range []string{"aaaaaaaaaA", "../../etc/", "aaaa\x00aaaaa", "aaaaaaaaa'"} {
		body := tokenPrefix + id + "_" + strings.Repeat("a", tokenSecret)
		if _, _, err := ParseToken(body + tokenSum(body)); err == nil {
			t.Errorf("id %q is taken", id)
		}
	}
	body := tokenPrefix + idA + "_" + strings.Repeat("A", tokenSecret)
	if _, _, err := ParseToken(body + tokenSum(body)); err == nil {
		t.Error("a secret in capitals is taken")
	}
}

func TestErrorsInATokenFileHaveTheirLine(t *testing.T) {
	for _, c := range []struct{ name, content, want string }{
		{"one word", lineA + "\nxyz\n", ":3: it has only one word"},
		{"a long id", strings.Repeat("a", 65) + " " + hashA, `:1: the id has 65 characters: 1 to 64 letters`},
		{"an id with a slash", "a/b " + hashA, `:1: the id has a character that is not allowed, number 2 of 3: 1 to 64 letters, digits, dots, dashes or underscores are allowed`},
		{"a short hash", idA + " 1111", ":1: the hash has 4 characters"},
		{"a long hash", idA + " " + strings.Repeat("1", 66), ":1: the hash has 66 characters"},
		{"no hex", "#\n" + idA + " " + strings.Repeat("x", 64), ":2: the hash is not hex"},
		{"an id twice", lineA + lineB + "\n" + lineA, ":4: the id is that of line 1"},
		{"a hash twice", "#\n" + lineA + lineB + "c " + hashA, ":4: the hash is that of line 2"},
		{"a hash twice, in capitals", "a " + strings.Repeat("ab", 32) + "\nb " + strings.Repeat("AB", 32), ":2: the hash is that of line 1"},
		{"the key as its id", lineA + lineOf("sk_live_27ab27ab", "sk_live_27ab27ab", ""), ":2: id is the key itself: an id is public"},
		{"no attribute", "a " + hashA + " acme", `:1: word 3 has no "=": a line is: ID SHA256 [workspace=NAME]`},
		{"an unknown attribute", lineA + "a " + hashA + " plan=gold Plan=gold", `:2: word 4 begins with no attribute that is known: workspace=, plan= and expires= are allowed, in lower case`},
		{"an attribute twice", "a " + hashA + " plan=gold plan=gold", ":1: plan= occurs twice"},
		{"an expiry twice", "a " + hashA + " expires=2027-01-31 expires=2027-01-31", ":1: expires= occurs twice"},
		{"an empty attribute", "a " + hashA + " plan=", `:1: plan= is empty: 1 to 64 letters`},
		{"a plan that no policy can name", lineA + "a " + hashA + " plan=by", `:2: plan= is the word by, which has another meaning in a policy: 1 to 64 letters, digits, dots, dashes or underscores are allowed, and not the word by`},
		{"a name of other characters", "a " + hashA + " workspace=ümit", ":1: workspace= has a character that is not allowed, number 1 of 4: 1 to 64"},
		{"no such day", "a " + hashA + " expires=2027-02-29", `:1: expires= has the form of a time, and there is none such, as on 2027-02-30: expected a date, 2027-01-31, or a time with its zone`},
		{"a time without a zone", "a " + hashA + " expires=2027-01-31T18:00:00", ":1: expires= is a time without a zone: expected"},
		{"no such hour", "a " + hashA + " expires=2027-01-31T24:00:01Z", ":1: expires= has the form of a time, and there is none such"},
		{"no time at all", "a " + hashA + " expires=tomorrow", ":1: expires= has 8 characters and is no time: expected"},
		{"a name of 65 characters", "a " + hashA + " plan=" + strings.Repeat("é", 65), ":1: plan= has a character that is not allowed, number 1 of 65:"},
		{"several problems", "a\nb\n" + lineA + "c\n", ":1: it has only one word: a line is: ID SHA256 [workspace=NAME] [plan=NAME] [expires=TIME]; 2 more lines have problems"},
		{"UTF-16", "\xFF\xFEa\x00 \x00", ":1: the file is UTF-16: save it as UTF-8"},
		{"an endless line", lineA + strings.Repeat("x", 1<<17), ":2: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "tokens")
			os.WriteFile(path, []byte(c.content), 0o600)
			if _, err := OpenTokenFile(path, TokenFileOptions{}); err == nil || !strings.Contains(err.Error(), path+c.want) {
				t.Errorf("error %v, want …%s", err, c.want)
			}
		})
	}
	large := filepath.Join(t.TempDir(), "tokens")
	os.WriteFile(large, nil, 0o600)
	os.Truncate(large, maxTokenFile+1) // sparse
	if _, err := OpenTokenFile(large, TokenFileOptions{}); err == nil || !strings.Contains(err.Error(), "has 268435457 bytes: at most 268435456 are read") {
		t.Errorf("a huge file: %v", err)
	}
	if _, err := OpenTokenFile(filepath.Join(t.TempDir(), "none"), TokenFileOptions{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

// Someone may paste the key, in any alphabet, in place of its hash, its id or anything else.
func TestErrorsInATokenFileContainNothingOfAKey(t *testing.T) {
	token, _, _, _ := NewToken(rand.Reader)
	path := filepath.Join(t.TempDir(), "tokens")
	for _, key := range []string{token, token[16:40], "Zk3jQ9w7/XpLr+Y2mC8dEg==", "Zk3jQ9w7é", "2027-99-31T9999", strings.Repeat("Zk3j", 20)} {
		for _, content := range []string{key, key + " " + hashA, key + " " + idA, idA + " " + key, lineOf(key, key, ""), lineB + idA + " " + hashA + " plan=" + key,
			idA + " " + hashA + " workspace=" + key, idA + " " + hashA + " expires=" + key, idA + " " + hashA + " " + key + "=gold", idA + " " + hashA + " " + key,
			idA + " " + hashA + " plan=by plan=" + key, "\uFEFF" + key + "\n" + key} {
			os.WriteFile(path, []byte(content), 0o600)
			_, err := OpenTokenFile(path, TokenFileOptions{})
			if err == nil {
				continue // a word that may be public
			}
			text := strings.ReplaceAll(err.Error(), path, "")
			for i := 0; i+5 <= len(key); i++ { // no five characters of it
				if part := key[i : i+5]; part != "2027-" && part != "wpt_" && strings.Contains(text, part) {
					t.Errorf("%q: error %s has %q", content, text, part)
				}
			}
		}
	}
}

// Editors of some systems begin a file with a byte order mark.
func TestATokenFileMayBeginWithAByteOrderMark(t *testing.T) {
	watch(t, "\uFEFF"+lineA).holds("with a mark", true, false)
	watch(t, "\uFEFF# ours\n"+lineA).holds("with a mark before a comment", true, false)
}

func TestEveryProblemOfATokenFileHasItsLine(t *testing.T) {
	_, err := ReadTokens(strings.NewReader(lineA + "x\n" + lineA + strings.Repeat("x\n", 30)))
	var bad *TokenFileError
	if !errors.As(err, &bad) || len(bad.Problems) != maxTokenProblems || bad.More != 32-maxTokenProblems {
		t.Fatalf("%v", err)
	}
	for i, want := range []int{2, 3, 4} {
		if bad.Problems[i].Line != want {
			t.Errorf("problem %d is on line %d, want %d", i, bad.Problems[i].Line, want)
		}
	}
	tokens, err := ReadTokens(strings.NewReader(lineA + lineB))
	if err != nil || len(tokens) != 2 || tokens[1].ID != idB {
		t.Errorf("%v, %v", tokens, err)
	}
}

// If a line is removed, its token is revoked within a second (D15).
func TestAFileIsReadAgainWhenItChanges(t *testing.T) {
	w := watch(t, lineA)
	w.write(lineA+lineB, 10*time.Second)
	w.clock = w.clock.Add(fileLook - 1)
	w.holds("before it is looked at", true, false)
	w.clock = w.clock.Add(1)
	w.holds("once it is", true, true)
	w.write(lineB, 9*time.Second)
	w.clock = w.clock.Add(fileLook)
	w.holds("a line removed", false, true)
	w.write("", 8*time.Second)
	w.clock = w.clock.Add(fileLook)
	w.holds("all removed", false, false)
	if w.reported != nil {
		t.Errorf("reported %q", w.reported)
	}
}

// A file's time may be coarser than its changes.
func TestTwoChangesWithinOneTickAreBothSeen(t *testing.T) {
	w := watch(t, lineA)
	w.write(lineA+"# x\n", 0)
	w.clock = w.clock.Add(fileLook)
	w.holds("the first", true, false)
	// The length and the time stay the same.
	w.write(strings.ReplaceAll(lineA, idA, "cccccccccc")+"# x\n", fileLook)
	w.clock = w.clock.Add(fileLook)
	w.holds("the second", false, false)
}

func TestAReplacedFileIsReadWithAnyModificationTime(t *testing.T) { // cp -p and rename
	w := watch(t, lineA)
	info, _ := os.Stat(w.path)
	other := w.path + ".new"
	os.WriteFile(other, []byte(strings.ReplaceAll(lineA, idA, "cccccccccc")), 0o600)
	os.Chtimes(other, info.ModTime(), info.ModTime())
	if err := os.Rename(other, w.path); err != nil {
		t.Fatal(err)
	}
	w.clock = w.clock.Add(fileLook)
	w.holds("replaced", false, false)
}

func TestABrokenFileIsReportedOnceAndTheLastGoodOneStays(t *testing.T) {
	w := watch(t, lineA)
	w.write(lineB+"broken\n", time.Minute)
	for range 5 {
		w.clock = w.clock.Add(fileLook)
		w.holds("broken", true, false)
	}
	if len(w.reported) != 1 || !strings.Contains(w.reported[0], ":2: it has only one word") || !strings.Contains(w.reported[0], "last good version stays") {
		t.Errorf("reported %q, want once with its line", w.reported)
	}
	w.write(lineB, time.Minute)
	w.clock = w.clock.Add(fileLook)
	w.holds("mended", false, true)
	w.write("broken\n", time.Minute)
	w.clock = w.clock.Add(fileLook)
	w.holds("broken again", false, true)
	if len(w.reported) != 2 {
		t.Errorf("reported %q, want the second break as well", w.reported)
	}
}

func TestAMissingFileIsReportedOnceAndTheLastGoodOneStays(t *testing.T) {
	w := watch(t, lineA)
	os.Remove(w.path)
	for range 5 {
		w.clock = w.clock.Add(fileLook)
		w.holds("gone", true, false)
	}
	if len(w.reported) != 1 {
		t.Errorf("reported %q, want once", w.reported)
	}
	w.write(lineB, time.Minute)
	w.clock = w.clock.Add(fileLook)
	w.holds("back", false, true)
}

func TestATokenFileIsReadOnceItIsReadable(t *testing.T) { // even with the previous version's time
	w := watch(t, lineA)
	info, _ := os.Stat(w.path)
	content, _ := os.ReadFile(w.path)
	os.Remove(w.path)
	os.Mkdir(w.path, 0o700) // opens but cannot be read, even by root
	w.clock = w.clock.Add(fileLook)
	w.holds("unreadable", true, false)
	os.Remove(w.path)
	os.WriteFile(w.path, append(content, lineB...), 0o600)
	os.Chtimes(w.path, info.ModTime(), info.ModTime())
	w.clock = w.clock.Add(fileLook)
	w.holds("readable", true, true)
	if len(w.reported) != 1 {
		t.Errorf("reported %q, want once", w.reported)
	}
}

func TestAClockSetBackDoesNotStopTheWatch(t *testing.T) {
	w := watch(t, lineA)
	w.clock = w.clock.Add(-24 * time.Hour)
	w.write(lineB, time.Minute)
	w.holds("set back", false, true)
}

func TestAChangeOfATokenFileIsReportedWithItsFigures(t *testing.T) {
	w := watch(t, lineA+lineB)
	for _, step := range []struct {
		content string
		want    []TokenFileChange
		valid   bool
	}{
		{lineB + "# comment\n" + lineA, nil, true}, // the tokens are the same
		{lineA + strings.TrimSpace(lineB) + " plan=gold\n", []TokenFileChange{{Tokens: 2, Was: 2, Changed: 1}}, true},
		{"c " + strings.Repeat("3", 64) + "\n" + lineA, []TokenFileChange{{Tokens: 2, Was: 2, Added: 1, Removed: 1}}, true},
		{"broken", nil, false},
		{"c " + strings.Repeat("3", 64) + "\n" + lineA, []TokenFileChange{{Tokens: 2, Was: 2, ValidAgain: true}}, true},
		{"broken again", nil, false},
		{"", []TokenFileChange{{Was: 2, Removed: 2, ValidAgain: true}}, true},
	} {
		w.changes = nil
		w.write(step.content, time.Minute)
		for range 3 {
			w.clock = w.clock.Add(fileLook)
			_, _ = w.Lookup(idA)
		}
		if !slices.Equal(w.changes, step.want) || w.Valid() != step.valid {
			t.Errorf("after %q: %+v, valid %v; want %+v, %v", step.content, w.changes, w.Valid(), step.want, step.valid)
		}
	}
	if n := len(slices.Collect(w.All())); n != w.Len() || n != 0 {
		t.Errorf("%d tokens", n)
	}
}

func TestAWatchedTokenFileReportsWithoutARequest(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	os.WriteFile(path, []byte(lineA), 0o600)
	synctest.Test(t, func(t *testing.T) {
		changed := make(chan TokenFileChange, 1)
		f, err := OpenTokenFile(path, TokenFileOptions{Changed: func(c TokenFileChange) { changed <- c }})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { f.Watch(ctx); close(ended) }()
		os.WriteFile(path, nil, 0o600)
		if c := <-changed; c != (TokenFileChange{Was: 1, Removed: 1}) {
			t.Errorf("%+v", c)
		}
		stop()
		<-ended
	})
}
