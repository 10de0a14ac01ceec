package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A looking is a Follower of a directory, and its clock.
type looking struct {
	*testing.T
	f   *Follower
	now time.Time
}

func lookAt(t *testing.T, path string) *looking {
	t.Helper()
	files, err := Files(path)
	if err != nil {
		t.Fatal(err)
	}
	l := &looking{T: t, now: time.Unix(1_800_000_000, 0)}
	l.f = NewFollower(path, files, l.now)
	return l
}

// look looks once for each of wants, which are the texts of the returned files; "" is no change.
func (l *looking) look(wants ...string) {
	l.Helper()
	for i, want := range wants {
		l.now = l.now.Add(LookEvery)
		files, err := l.f.Look(l.now)
		var texts []string
		for _, f := range files {
			texts = append(texts, string(f.Text))
		}
		if got := strings.Join(texts, "|"); err != nil || got != want {
			l.Fatalf("look %d: %q, %v, want %q", i+1, got, err, want)
		}
	}
}

// swap makes a link lead to another target in one step.
func swap(t *testing.T, link, target string) {
	t.Helper()
	if err := os.Symlink(target, link+".next"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(link+".next", link); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func TestAFileThatAppearsIsReadWhenItIsQuiet(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), "one")
	l := lookAt(t, dir)
	l.look("", "", "")
	write(t, filepath.Join(dir, "b.yaml"), "tw") // half of it
	l.look("", "")
	write(t, filepath.Join(dir, "b.yaml"), "two")
	l.look("", "", "one|two", "")
}

func TestAFileThatVanishesForAMomentKeepsItsLimits(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), "one")
	write(t, filepath.Join(dir, "b.yaml"), "two")
	l := lookAt(t, dir)
	l.look("", "", "")
	remove(t, filepath.Join(dir, "a.yaml"))
	l.look("")
	write(t, filepath.Join(dir, "a.yaml"), "one and more")
	l.look("", "", "one and more|two")
	remove(t, filepath.Join(dir, "b.yaml"))
	l.look("", "", "one and more", "")
}

// A link that becomes a file is written like any other one.
func TestAFileInPlaceOfALinkIsReadWhenItIsQuiet(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, ".1"), "one")
	swap(t, filepath.Join(dir, "a.yaml"), ".1")
	l := lookAt(t, dir)
	l.look("", "", "")
	remove(t, filepath.Join(dir, "a.yaml"))
	write(t, filepath.Join(dir, "a.yaml"), "tw")
	l.look("", "", "tw")
}

// Kubernetes swaps ..data, then adds the links to new files, and then removes those to old ones.
func TestASwapThatAddsOrRenamesAFileIsReadAtOnceWhenItIsComplete(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "..1", "a.yaml"), "one")
	write(t, filepath.Join(dir, "..2", "a.yaml"), "two")
	write(t, filepath.Join(dir, "..2", "b.yaml"), "new")
	write(t, filepath.Join(dir, "..3", "c.yaml"), "three")
	write(t, filepath.Join(dir, "..4", "d.yaml"), "four")
	write(t, filepath.Join(dir, "..5", "e.yaml"), "five")
	data := filepath.Join(dir, "..data")
	link := func(name string) { swap(t, filepath.Join(dir, name), filepath.Join("..data", name)) }
	unlink := func(name string) { remove(t, filepath.Join(dir, name)) }
	swap(t, data, "..1")
	link("a.yaml")
	l := lookAt(t, dir)
	l.look("", "", "")

	swap(t, data, "..2")
	link("b.yaml")
	l.look("two|new", "", "")

	swap(t, data, "..3")
	link("c.yaml")
	unlink("a.yaml")
	unlink("b.yaml")
	l.look("", "", "three", "") // there are fewer files

	swap(t, data, "..4")
	link("d.yaml")
	unlink("c.yaml")
	l.look("four", "")

	swap(t, data, "..5")
	l.look("") // the link leads nowhere
	link("e.yaml")
	unlink("d.yaml")
	l.look("five", "")
}

func TestASwappedDirectoryAboveOneFileIsReadAtOnce(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "1", "a.yaml"), "one")
	write(t, filepath.Join(dir, "2", "a.yaml"), "two")
	swap(t, filepath.Join(dir, "current"), "1")
	l := lookAt(t, filepath.Join(dir, "current", "a.yaml"))
	l.look("")
	swap(t, filepath.Join(dir, "current"), "2")
	l.look("two", "")
}

func TestAFileThatChangesBetweenTheStartAndTheFirstLookIsReadWhenItIsQuiet(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), "one")
	l := lookAt(t, dir)
	write(t, filepath.Join(dir, "a.yaml"), "tw")
	l.f = NewFollower(dir, l.f.files, l.now) // the file has changed before its first stamp
	l.look("")
	write(t, filepath.Join(dir, "a.yaml"), "two")
	l.look("", "", "two", "")
}

func TestAFailureThatDidNotLastIsNotReported(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yaml")
	write(t, path, "one")
	l := lookAt(t, path)
	l.look("", "", "")
	remove(t, path)
	l.look("", "") // it is missing for a second
	for i := range 4 {
		write(t, path, strings.Repeat("two", i+1))
		l.look("")
	}
	remove(t, path)
	l.look("", "", "", "", "", "")
	l.now = l.now.Add(LookEvery)
	if _, err := l.f.Look(l.now); err == nil {
		t.Error("a file that is missing for three seconds was not reported")
	}
}
