package identity

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
	f, err := OpenTokenFile(path, func(err error) { w.reported = append(w.reported, err.Error()); w.Len() })
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
		{"a long id", strings.Repeat("a", 65) + " " + hashA, `:1: id "aaaaaaaaaa" of 65 characters`},
		{"an id with a slash", "a/b " + hashA, `:1: id "a/b" of 3 characters: expected 1 to 64 letters, digits, dots, dashes or underscores`},
		{"a short hash", idA + " 1111", ":1: the hash has 4 characters"},
		{"a long hash", idA + " " + strings.Repeat("1", 66), ":1: the hash has 66 characters"},
		{"no hex", "#\n" + idA + " " + strings.Repeat("x", 64), ":2: the hash is not hex"},
		{"an id twice", lineA + lineB + "\n" + lineA, ":4: the id is that of line 1"},
		{"a hash twice", "#\n" + lineA + lineB + "c " + hashA, ":4: the hash is that of line 2"},
		{"a hash twice, in capitals", "a " + strings.Repeat("ab", 32) + "\nb " + strings.Repeat("AB", 32), ":2: the hash is that of line 1"},
		{"the key as its id", lineA + lineOf("sk_live_27ab27ab", "sk_live_27ab27ab", ""), ":2: id is the key itself: an id is public"},
		{"no attribute", "a " + hashA + " acme", `:1: word 3 has no "=": a line is: ID SHA256 [workspace=NAME]`},
		{"an unknown attribute", lineA + "a " + hashA + " plan=gold Plan=gold", `:2: attribute "Plan": workspace=, plan= and expires= are allowed`},
		{"an attribute twice", "a " + hashA + " plan=gold plan=gold", ":1: plan= occurs twice"},
		{"an expiry twice", "a " + hashA + " expires=2027-01-31 expires=2027-01-31", ":1: expires= occurs twice"},
		{"an empty attribute", "a " + hashA + " plan=", `:1: plan="": expected 1 to 64 letters`},
		{"a plan that no policy can name", lineA + "a " + hashA + " plan=by", `:2: plan="by": expected 1 to 64 letters, digits, dots, dashes or underscores, and not the word by`},
		{"a name of other characters", "a " + hashA + " workspace=ümit", ":1: workspace="},
		{"no such day", "a " + hashA + " expires=2027-02-29", `:1: expires="2027-02-29": expected a date, 2027-01-31, or a time with its zone`},
		{"a time without a zone", "a " + hashA + " expires=2027-01-31T18:00:00", ":1: expires="},
		{"an endless line", lineA + strings.Repeat("x", 1<<17), ":2: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "tokens")
			os.WriteFile(path, []byte(c.content), 0o600)
			if _, err := OpenTokenFile(path, nil); err == nil || !strings.Contains(err.Error(), path+c.want) {
				t.Errorf("error %v, want …%s", err, c.want)
			}
		})
	}
	large := filepath.Join(t.TempDir(), "tokens")
	os.WriteFile(large, nil, 0o600)
	os.Truncate(large, maxTokenFile+1) // sparse
	if _, err := OpenTokenFile(large, nil); err == nil || !strings.Contains(err.Error(), "has 268435457 bytes: at most 268435456 are read") {
		t.Errorf("a huge file: %v", err)
	}
	if _, err := OpenTokenFile(filepath.Join(t.TempDir(), "none"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

// Someone may paste the token in place of its hash.
func TestErrorsInATokenFileContainNoSecret(t *testing.T) {
	token, id, _, _ := NewToken(rand.Reader)
	path := filepath.Join(t.TempDir(), "tokens")
	key := token[16:40]
	for _, content := range []string{id + " " + token, token, token + " " + id, lineOf(key, key, ""), lineB + idA + " " + hashA + " plan=" + token, idA + " " + hashA + " workspace=" + token} {
		os.WriteFile(path, []byte(content), 0o600)
		if _, err := OpenTokenFile(path, nil); err == nil || strings.Contains(err.Error(), key) {
			t.Errorf("%q: error %v", content, err)
		}
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
