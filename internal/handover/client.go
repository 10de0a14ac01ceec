package handover

import (
	"errors"
	"fmt"
	"sync"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
)

// A client asks the process that has the counts. It is safe for concurrent use. After an error of
// the connection it asks no more, since a late answer could be taken for that to another question:
// then it is unknown whether the last question was counted.
type client struct {
	mu     sync.Mutex // held while a question is asked
	link   *link
	gone   error // why nothing is asked any more
	closed bool  // link is closed
}

// A question is asked of the process that has the counts.
type question struct {
	Op      op
	Charges []weir.Charge `json:",omitempty"`
	Ticket  *weir.Ticket  `json:",omitempty"`
	Changes []weir.Change `json:",omitempty"`
	Grants  []weir.Grant  `json:",omitempty"`
}

// An op is the method of a store.
type op string

const (
	opTake   op = "take"
	opSettle op = "settle"
	opReset  op = "reset"
	opGrant  op = "grant"
)

// An answer is that to a question.
type answer struct {
	Error   string        `json:",omitempty"`
	Shared  bool          `json:",omitempty"` // Error wraps memstore.ErrShared
	Receipt *weir.Receipt `json:",omitempty"`
	Changes []weir.Change `json:",omitempty"`
}

// ask sends a question and returns the answer.
func (c *client) ask(q *question) (*answer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone != nil {
		return nil, c.gone
	}
	a := new(answer)
	err := c.link.bound(maxWait)
	if err == nil {
		err = c.link.send(q)
	}
	if err == nil {
		err = c.link.receive(a)
	}
	if err != nil {
		// The connection stays open: its end would free the slots of requests under way.
		c.gone = fmt.Errorf("ask the process that has the counts: %w", err)
		return nil, c.gone
	}
	switch {
	case a.Shared:
		return nil, fmt.Errorf("the process that has the counts: %w", memstore.ErrShared)
	case a.Error != "":
		return nil, errors.New(a.Error)
	}
	return a, nil
}

func (c *client) take(charges []weir.Charge, receipt *weir.Receipt) error {
	a, err := c.ask(&question{Op: opTake, Charges: charges})
	if err != nil {
		return err
	}
	if a.Receipt == nil {
		return errors.New("take: the answer has no receipt")
	}
	*receipt = *a.Receipt
	return nil
}

func (c *client) settle(t *weir.Ticket, changes []weir.Change) error {
	a, err := c.ask(&question{Op: opSettle, Ticket: t, Changes: changes})
	if err != nil {
		return err
	}
	if len(a.Changes) != len(changes) {
		return fmt.Errorf("settle %d changes: the answer has %d", len(changes), len(a.Changes))
	}
	for i := range changes {
		changes[i].Done, changes[i].Lost, changes[i].Used = a.Changes[i].Done, a.Changes[i].Lost, a.Changes[i].Used
	}
	return nil
}

func (c *client) reset(charges []weir.Charge) error {
	_, err := c.ask(&question{Op: opReset, Charges: charges})
	return err
}

func (c *client) grant(charges []weir.Charge, grants []weir.Grant) error {
	_, err := c.ask(&question{Op: opGrant, Charges: charges, Grants: grants})
	return err
}

func (c *client) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone == nil {
		c.gone = ErrClosed
	}
	if !c.closed {
		c.closed = true
		c.link.close()
	}
}
