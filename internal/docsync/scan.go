package docsync

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/weirlimit/weir/internal/folder"
)

// A digest tells two versions of a document apart.
type digest [sha256.Size]byte

// digestOf covers all that is sent. Lengths stand before the parts, so that no two documents read the same.
func digestOf(d folder.Document) digest {
	h := sha256.New()
	for _, part := range []string{d.Title, d.URL, d.Text} {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		h.Write([]byte(part))
	}
	return digest(h.Sum(nil))
}

// found is what a look at the whole folder has found. It holds no text: a file is read again when its batch is made.
type found struct {
	seen      map[string]bool // paths of all files that should be documents, bad ones too
	unread    []string        // folders that could not be read, each with a slash at its end
	changed   []change
	unchanged int
	links     map[string]string // that were made from the base, each with the first document that has it
	derived   int               // documents whose link was made from the base
	passed    folder.Tally
}

// Alike: two documents have one link, which was made from their paths. Both are sent, and a visitor finds one of them.
type Alike struct{ First, Second, URL string }

// A change is a document to send.
type change struct {
	id   string
	size int32 // bytes as an item, when it was looked at
}

func (f *found) foldersUnread() int { return len(f.unread) }

func (s *Sync) scan(ctx context.Context) error {
	f := &found{seen: map[string]bool{}, links: map[string]string{}}
	files := 0
	passed, err := s.o.Folder.Walk(ctx, func(path string, p *folder.Problem) {
		switch {
		case p != nil && p.Folder:
			f.unread = append(f.unread, path+"/")
			s.skip(*p)
			return
		case p != nil:
			f.seen[path] = true
			s.skip(*p)
			return
		}
		f.seen[path] = true
		s.compare(ctx, f, path)
		files++
		s.mu.Lock()
		s.tell(Read{files})
		s.mu.Unlock()
	})
	switch {
	case ctx.Err() != nil:
		return ErrInterrupted
	case err != nil:
		return &Failure{err, "name a folder that you may read"}
	}
	f.links = nil // a large folder has many
	f.passed, s.found = passed, f
	return nil
}

// compare sees whether a document is what was acknowledged.
func (s *Sync) compare(ctx context.Context, f *found, path string) {
	d, err := s.o.Folder.Read(ctx, path)
	var p *folder.Problem
	if errors.As(err, &p) {
		s.skip(*p)
		return
	}
	if err != nil { // ctx has ended
		return
	}
	if !d.Own {
		f.derived++
		if first, ok := f.links[d.URL]; ok {
			s.mu.Lock()
			s.tell(Alike{first, path, d.URL})
			s.mu.Unlock()
		} else {
			f.links[d.URL] = path
		}
	}
	if was, ok := s.state.known[path]; ok && was == digestOf(d) && !s.o.All {
		f.unchanged++
		return
	}
	f.changed = append(f.changed, change{path, int32(len(item(d)))})
}

// vanished returns what is known and gone. What could not be read is not gone, nor what is a symbolic link now, or below one.
func (f *found) vanished(known map[string]digest) []string {
	unread := map[string]bool{}
	for _, p := range slices.Concat(f.unread, f.passed.Linked) {
		unread[strings.TrimSuffix(p, "/")] = true
	}
	hidden := func(id string) bool {
		for ; id != "." && id != "/"; id = path.Dir(id) {
			if unread[id] {
				return true
			}
		}
		return false
	}
	var gone []string
	for id := range known {
		if !f.seen[id] && !hidden(id) {
			gone = append(gone, id)
		}
	}
	slices.Sort(gone)
	return gone
}
