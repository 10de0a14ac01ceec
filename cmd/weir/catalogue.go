package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/memstore"
)

// messages returns the names of the messages that a policy may choose.
func messages() []string { return httplimit.Messages() }

// messageText returns the English text of a message of the catalogue, by being refused.
func messageText(name string) (string, error) {
	key, err := weir.ParseKey(identity.IP)
	if err != nil {
		return "", err
	}
	const limiter = "any"
	p := weir.Policy{Limiters: []weir.Limiter{{
		Name: limiter, Message: name, Windows: []weir.Window{{Limit: 1, Per: weir.MaxPer, Key: key}}}}}
	store, err := memstore.New(memstore.Options{})
	if err != nil {
		return "", err
	}
	defer store.Close()
	m, d, err := middleware(p, store)
	if err != nil {
		return "", err
	}
	request, err := http.NewRequest(http.MethodGet, "/", nil)
	if err != nil {
		return "", err
	}
	q := httplimit.Question{Request: &identity.HTTPRequest{Request: request}, Match: d.Named(limiter)}
	var c identity.Caller
	var a httplimit.Answer
	for range 2 { // one is admitted
		if err := m.Judge(context.Background(), q, &c, &a); err != nil {
			return "", err
		}
	}
	var body struct{ Error struct{ Message string } }
	if err := json.Unmarshal(a.Body(), &body); err != nil {
		return "", fmt.Errorf("read the message %q: %w", name, err)
	}
	return body.Error.Message, nil
}

// middleware returns a middleware that nothing is behind.
func middleware(p weir.Policy, store weir.Store) (*httplimit.Middleware, *weir.Decider, error) {
	d, err := weir.New(p, store, weir.Options{Sources: identity.Sources()})
	if err != nil {
		return nil, nil, err
	}
	who, err := identity.New(identity.Options{})
	if err != nil {
		return nil, nil, err
	}
	m, err := httplimit.New(d, httplimit.Options{Identity: who})
	return m, d, err
}
