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

// A batch is the body of one request, and what is in it.
type batch struct {
	ids     []string
	digests []digest // of documents to store; none where they are deleted
	body    []byte
	ends    []int // where each item ends in body
}

func newBatch() *batch { return &batch{body: []byte(head)} }

// fits says whether an item of so many bytes can still be added.
func (b *batch) fits(size, largest int) bool {
	return len(b.ids) == 0 || len(b.ids) < maxItems && len(b.body)+len(",")+size+len(tail) <= largest
}

func (b *batch) add(id string, item []byte) {
	if len(b.ids) > 0 {
		b.body = append(b.body, ',')
	}
	b.body = append(b.body, item...)
	b.ids, b.ends = append(b.ids, id), append(b.ends, len(b.body))
}

// json returns the body, whole.
func (b *batch) json() []byte { return append(b.body[:len(b.body):len(b.body)], tail...) }

// only returns a batch of the items that keep says, by index.
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

// item is a document as JSON.
func item(d folder.Document) []byte {
	return encode(struct {
		ID    string `json:"id"`
		Title string `json:"title"`
		URL   string `json:"url"`
		Text  string `json:"text"`
	}{d.ID, d.Title, d.URL, d.Text})
}

// encode writes JSON without escaping what only HTML would need escaped.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // strings alone: there is nothing that cannot be written
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// requests returns how many batches items of these sizes make.
func requests(sizes []int, largest int) (n int) {
	items, bytes := 0, 0
	for _, size := range sizes {
		if items == 0 || items == maxItems || bytes+len(",")+size+len(tail) > largest {
			n, items, bytes = n+1, 0, len(head)-len(",")
		}
		items, bytes = items+1, bytes+len(",")+size
	}
	return n
}

// A supply makes batches of what is to be sent. One goroutine at a time may ask it.
type supply struct {
	s     *Sync
	todo  []change
	ready struct { // a document that did not fit into the batch before
		id     string
		digest digest
		item   []byte
	}
}

// next returns the next batch; nil where there is nothing left. A file that has become bad since it was looked at is skipped,
// one that has become what is known is left out.
func (u *supply) next(ctx context.Context, largest int) *batch {
	b := newBatch()
	for {
		if u.ready.item == nil && !u.read(ctx) {
			break
		}
		if !b.fits(len(u.ready.item), largest) {
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

// read makes the next document ready; false where there is none.
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

// deletions makes batches of ids to delete.
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
