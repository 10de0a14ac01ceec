package docsync

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

	"github.com/weirlimit/weir/internal/folder"
)

const (
	head = `{"items":[`
	tail = `]}`
)

// A batch is the body of one request and the documents in it.
type batch struct {
	ids     []string
	digests []digest // of documents to store; nil for deletions
	body    []byte
	ends    []int // offset of the end of each item in body
}

func newBatch() *batch { return &batch{body: []byte(head)} }

// fits reports whether an item of size bytes can be added to a body of at most max bytes. The first
// item always fits.
func (b *batch) fits(size, max int) bool {
	return len(b.ids) == 0 || len(b.ids) < maxItems && len(b.body)+len(",")+size+len(tail) <= max
}

func (b *batch) add(id string, item []byte) {
	if len(b.ids) > 0 {
		b.body = append(b.body, ',')
	}
	b.body = append(b.body, item...)
	b.ids, b.ends = append(b.ids, id), append(b.ends, len(b.body))
}

// json returns the complete body.
func (b *batch) json() []byte { return append(b.body[:len(b.body):len(b.body)], tail...) }

// only returns a batch of the items for whose index keep is true.
func (b *batch) only(keep func(i int) bool) *batch {
	kept := newBatch()
	begin := len(head)
	for i, id := range b.ids {
		if keep(i) {
			kept.add(id, b.body[begin:b.ends[i]])
			if b.digests != nil {
				kept.digests = append(kept.digests, b.digests[i])
			}
		}
		begin = b.ends[i] + len(",")
	}
	return kept
}

// item returns a document as JSON.
func item(d folder.Document) []byte {
	return encode(struct {
		ID    string `json:"id"`
		Title string `json:"title"`
		URL   string `json:"url"`
		Text  string `json:"text"`
	}{d.ID, d.Title, d.URL, d.Text})
}

// encode returns v as JSON without the escapes that only HTML needs.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // only strings, numbers and maps of them: cannot fail
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// requests returns the number of batches for items of the given sizes, with bodies of at most max
// bytes.
func requests(sizes []int, max int) (n int) {
	items, bytes := 0, 0
	for _, size := range sizes {
		if items == 0 || items == maxItems || bytes+len(",")+size+len(tail) > max {
			n, items, bytes = n+1, 0, len(head)-len(",")
		}
		items, bytes = items+1, bytes+len(",")+size
	}
	return n
}

// A supply makes batches of the changed documents. It is not safe for concurrent use.
type supply struct {
	s     *Sync
	todo  []change
	ready struct { // a document that did not fit into the previous batch
		id     string
		digest digest
		item   []byte
	}
}

// next returns the next batch, with a body of at most max bytes, or nil if no documents are left.
// It skips a file that has become bad since the scan.
func (u *supply) next(ctx context.Context, max int) *batch {
	b := newBatch()
	for {
		if u.ready.item == nil && !u.read(ctx) {
			break
		}
		if !b.fits(len(u.ready.item), max) {
			break
		}
		b.add(u.ready.id, u.ready.item)
		b.digests = append(b.digests, u.ready.digest)
		u.ready.item = nil
	}
	if len(b.ids) == 0 {
		return nil
	}
	return b
}

// read makes the next document ready. It returns false if there are no more, or ctx has ended.
func (u *supply) read(ctx context.Context) bool {
	for len(u.todo) > 0 {
		id := u.todo[0].id
		u.todo = u.todo[1:]
		d, err := u.s.o.Folder.Read(ctx, id)
		var p *folder.Problem
		if errors.As(err, &p) {
			u.s.skip(*p)
			continue
		}
		if err != nil { // ctx has ended
			return false
		}
		u.ready.id, u.ready.digest, u.ready.item = id, digestOf(d), item(d)
		return true
	}
	return false
}

// deletions returns batches that delete ids.
func deletions(ids []string) []*batch {
	var all []*batch
	var b *batch
	for _, id := range ids {
		object := encode(struct {
			ID string `json:"id"`
		}{id})
		if b == nil || !b.fits(len(object), maxDelete) {
			b = newBatch()
			all = append(all, b)
		}
		b.add(id, object)
	}
	return all
}
