package verify

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
)

// Held requests are sent without the end of their bodies, so that they stay under way: a limiter
// admits a request at its head.

// heldBuffer is how much of a request net/http keeps before it writes. What a held request sends of
// its body at once is as long, so that the head is written.
const heldBuffer = 256

// A held request is under way until finish or leave.
type held struct {
	slot   *slot
	conn   *http.ClientConn // of the slot, which may have dropped it
	end    chan struct{}    // closed when the rest of the body may be sent
	once   sync.Once
	cancel context.CancelFunc
	done   chan struct{} // closed when it has an answer or none
	answer *answer
	err    error
}

// begin sends a request but the end of its body, over a connection of its own. A request without a
// body is not sent before it is finished. Every held request must be finished or left.
func (w *wire) begin(ctx context.Context, r request, take func() bool) (*held, error) {
	h := &held{slot: new(slot), end: make(chan struct{}), done: make(chan struct{})}
	ctx, h.cancel = context.WithTimeout(ctx, 2*answerTime)
	if err := w.connectBy(ctx, w.holding, h.slot); err != nil {
		h.cancel()
		return nil, &lostError{err: err, unsent: true}
	}
	h.conn = h.slot.conn
	out, err := w.compose(ctx, r)
	switch {
	case err != nil:
	case !take():
		err = errBudget
	case w.sent.Add(1) > w.budget:
		w.sent.Add(-1)
		err = errBudget
	}
	if err != nil {
		h.cancel()
		h.slot.drop()
		return nil, err
	}
	if r.body != "" {
		body := strings.Repeat(" ", heldBuffer) + r.body
		out.Body, out.ContentLength = &withheld{ctx: ctx, h: h, first: body[:heldBuffer], rest: body[heldBuffer:]}, int64(len(body))
	}
	go func() {
		defer close(h.done)
		if r.body == "" {
			select {
			case <-h.end:
			case <-ctx.Done():
				h.err = errLeft
				return
			}
		}
		if h.answer, h.err = w.exchange(h.slot, out); h.err == nil {
			h.answer.request = r
		}
	}()
	return h, nil
}

// answered returns the answer if there is one, and otherwise nil: the request is under way.
func (h *held) answered() (*answer, error) {
	select {
	case <-h.done:
		return h.answer, h.err
	default:
		return nil, nil
	}
}

// finish sends the end of the body and returns the answer.
func (h *held) finish() (*answer, error) {
	h.once.Do(func() { close(h.end) })
	return h.close()
}

// leave closes the connection. The answer is nil unless it came before.
func (h *held) leave() (*answer, error) {
	h.cancel()
	_ = h.conn.Close() // the slot is the exchange's until that is done
	return h.close()
}

func (h *held) close() (*answer, error) {
	<-h.done
	h.cancel()
	h.slot.drop()
	if h.err != nil {
		return nil, &lostError{err: h.err}
	}
	return h.answer, nil
}

// A withheld body has its end when the held request is finished.
type withheld struct {
	ctx         context.Context // of the request
	h           *held
	first, rest string
}

var errLeft = errors.New("left before the body was sent")

// Read reads the first part at once, and the rest when the request is finished.
func (b *withheld) Read(p []byte) (n int, err error) {
	if b.first != "" {
		n = copy(p, b.first)
		b.first = b.first[n:]
		return n, nil
	}
	select {
	case <-b.h.end:
	case <-b.ctx.Done():
		return 0, errLeft
	}
	if b.rest == "" {
		return 0, io.EOF
	}
	n = copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

func (b *withheld) Close() error { return nil }

// newHolding returns the transport of held requests.
func newHolding(of *http.Transport) *http.Transport {
	t := of.Clone()
	t.WriteBufferSize = heldBuffer
	return t
}
