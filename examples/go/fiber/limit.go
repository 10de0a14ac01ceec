package main

import (
	"bytes"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"sync"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/headers"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/memstore"
)

// limit returns a handler that limits all requests that it gets, by windows as a policy spells
// them. who resolves callers; behind a proxy it has TrustedProxies. The counts are in memory, in a
// store of their own.
func limit(who *identity.Resolver, windows ...string) (fiber.Handler, error) {
	const name = "limit"
	limiter := weir.Limiter{Name: name}
	for _, text := range windows {
		w, err := weir.ParseWindow(text)
		if err != nil {
			return nil, err
		}
		limiter.Windows = append(limiter.Windows, w)
	}
	store, err := memstore.New(memstore.Options{})
	if err != nil {
		return nil, err
	}
	decider, err := weir.New(weir.Policy{Limiters: []weir.Limiter{limiter}}, store, weir.Options{Sources: who.Sources()})
	if err != nil {
		return nil, err
	}
	judge, err := answer.New(decider, answer.Options{Door: "fiber", Identity: who})
	if err != nil {
		return nil, err
	}
	d := &door{judge: judge, who: who, match: func() weir.Match { return decider.Named(name) }}
	d.exchanges.New = func() any { return new(exchange) }
	return d.handle, nil
}

// A door limits requests of fiber.
type door struct {
	judge     *answer.Judge
	who       *identity.Resolver
	match     func() weir.Match
	exchanges sync.Pool
}

// An exchange is the memory of one request, used again for the next.
type exchange struct {
	request  request
	caller   identity.Caller
	question answer.Question
	answer   answer.Answer
	fields   []answer.Field
}

func (d *door) handle(c fiber.Ctx) error {
	e := d.exchanges.Get().(*exchange)
	defer d.release(e)
	e.request = request{c}
	d.who.Start(&e.caller, &e.request)
	e.question = answer.Question{Caller: &e.caller, Method: c.Method(), Match: d.match(), Chosen: true}
	a := &e.answer
	if err := d.judge.Answer(c.Context(), &e.question, a); err != nil {
		return fmt.Errorf("limit the request: %w", err)
	}
	defer d.judge.End(c.Context(), a)
	header := &c.Response().Header
	if a.Status != 0 {
		c.Status(a.Status)
		e.put(header)
		return c.Send(a.Body())
	}
	// fiber makes a response of an error when all handlers have returned, which is too late here
	if err := c.Next(); err != nil {
		if err := c.App().ErrorHandler(c, err); err != nil {
			c.Status(fiber.StatusInternalServerError)
		}
	}
	status := c.Response().StatusCode()
	d.judge.Head(c.Context(), a, status, func(name string) []string { return lines(header.PeekAll(name)) })
	if retry := lines(header.PeekAll(headers.RetryAfter)); status == fiber.StatusTooManyRequests {
		a.BackendRefused(retry)
	}
	e.put(header)
	return nil
}

func (d *door) release(e *exchange) {
	e.request = request{}
	d.exchanges.Put(e)
}

// put replaces the fields that the answer owns. They keep the contract's spelling, which Set would
// change. Date is fasthttp's own.
func (e *exchange) put(header *fasthttp.ResponseHeader) {
	var owned []string
	for name := range header.All() {
		if name := string(name); e.answer.Owns(name) {
			owned = append(owned, name)
		}
	}
	for _, name := range owned {
		header.Del(name)
	}
	e.fields = e.answer.AppendFields(e.fields[:0])
	for _, f := range e.fields {
		switch {
		case f.Name == headers.Date:
		case f.Name == fiber.HeaderVary:
			header.Add(f.Name, f.Value)
		default:
			header.SetCanonical([]byte(f.Name), []byte(f.Value))
		}
	}
}

// A request is an identity.Request over fasthttp. Its texts are copies: fasthttp uses its memory
// again, and a caller's key may outlive the request in a cache.
type request struct{ fiber.Ctx }

func (r *request) Peer() netip.Addr { return identity.ParsePeer(r.RequestCtx().RemoteAddr().String()) }

func (r *request) Header(name string) []string {
	return lines(r.RequestCtx().Request.Header.PeekAll(name))
}

func (r *request) Host() string { return string(r.RequestCtx().Request.Header.Host()) }

func (r *request) RawQuery() string { return string(r.RequestCtx().URI().QueryString()) }

func (r *request) Certificate() *identity.Certificate {
	if state := r.RequestCtx().TLSConnectionState(); state != nil {
		return identity.NewCertificate(state.VerifiedChains)
	}
	return nil
}

// Body is what fiber has read of the body already: all of it, unless Config.StreamRequestBody is
// set. Then a body is not read for the limiter.
func (r *request) Body(limit int) []byte {
	if r.RequestCtx().Request.IsBodyStream() {
		return nil
	}
	body := r.RequestCtx().PostBody()
	return bytes.Clone(body[:min(limit, len(body))])
}

func lines(values [][]byte) []string {
	var all []string
	for _, v := range values {
		all = append(all, string(v))
	}
	return all
}

// parameter returns a key source of this name: the parameter of fiber's route. The caller chooses
// its value, so windows join it with what the caller cannot choose.
func parameter(name string) identity.Source {
	return identity.Source{
		Source: weir.Source{Name: name, Kind: weir.Chosen, Optional: true},
		Find: func(r identity.Request, _ string) (string, bool) {
			value := strings.Clone(r.(*request).Params(name))
			// fiber has it as it was sent (Config.UnescapePath), and one value has one budget
			if plain, err := url.PathUnescape(value); err == nil {
				value = plain
			}
			return value, value != ""
		},
	}
}
