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

// A digest identifies a version of a document.
type digest [sha256.Size]byte

// digestOf returns the digest of everything that is sent. Each part is preceded by its length, so
// that parts cannot run into each other.
func digestOf(d folder.Document) digest {
	h := sha256.New()
	for _, part := range []string{d.Title, d.URL, d.Text} {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		h.Write([]byte(part))
	}
	return digest(h.Sum(nil))
}

// found is the result of a scan. It holds no text: a file is read again when its batch is made.
type found struct {
	seen      map[string]bool // paths of all files that should be documents, including bad ones
	unread    []string        // folders that could not be read, each with a trailing slash
	changed   []change
	unchanged int
	// links made from the base, each with the first document that has it
	links   map[string]string
	derived int // documents with such a link
	passed  folder.Tally
}

// SameURL reports two documents with the same link, which was made from their paths. Both are sent,
// but a visitor finds only one of them.
type SameURL struct{ First, Second, URL string }

// A change is a document to send.
type change struct {
	id   string
	size int32 // bytes as an item at the time of the scan
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
		s.report(Read{files})
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

// compare notes whether a document differs from the acknowledged one.
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
			s.report(SameURL{first, path, d.URL})
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

// vanished returns the ids in the state whose files are gone. A file is not gone if it could not be
// read, or if it or a folder above it is now a symbolic link.
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
