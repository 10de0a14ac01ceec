package http2

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/weirlimit/weir/internal/gateway/pace"
	"github.com/weirlimit/weir/internal/gateway/relay"
	"github.com/weirlimit/weir/internal/gateway/rules"
	"github.com/weirlimit/weir/internal/wire"
)

// forward sends the request to the upstream, and its answer back.
func (x *exchange) forward() {
	x.Reached = true
	if limit := x.body.max; limit > 0 && x.head.Length > limit {
		x.reply(rules.BodyTooLarge(limit))
		return
	}
	if x.head.Protocol != "" {
		x.openTunnel()
		return
	}
	c := relay.New()
	x.call = c
	defer x.endCall()
	c.Pool, c.Method, c.Buffers, c.Log, c.Inform = x.Site.Pool, x.head.Method, &x.c.engine.copies, x.c.engine.Log, x.inform
	err := x.measureBody()
	if err == nil {
		c.Request = x.appendRequest(c.Request[:0])
		err = x.addBody(c)
	}
	if err != nil {
		x.forwardFailed(&relay.BodyError{Err: err})
		return
	}
	asked := time.Since(x.Start)
	err = c.Do(x.s.ctx, x.Start.Add(asked))
	x.UpstreamTime = time.Since(x.Start) - asked
	x.Upstream = c.At
	if err != nil {
		x.forwardFailed(err)
		return
	}
	x.pass(c)
}

// endCall ends the exchange with the upstream, if there is one.
func (x *exchange) endCall() {
	if c := x.call; c != nil {
		x.call = nil
		c.End()
	}
}

// forwardFailed answers for an upstream that did not, or for a request whose body did not arrive.
func (x *exchange) forwardFailed(err error) {
	var broke *relay.BodyError
	var large *http.MaxBytesError
	x.fields = x.fields[:0]
	switch {
	case errors.As(err, &broke) && (errors.As(err, &large) || pace.IsTimeout(err)):
		x.reply(rules.BodyFailed(broke.Err))
	case x.endsUnanswered():
	case broke != nil:
		x.reply(rules.BodyFailed(broke.Err))
	default:
		x.reply(x.c.engine.NoUpstream(x.Site, x.head.Method, x.Upstream, err))
	}
}

// measureBody finds whether a request whose length is not known has a body. A client may send the
// end of its stream apart from the head also if there is none. The beginning is awaited then if the
// method gives a body no meaning: few such requests have one, and it has its price (see
// rules.Onward).
func (x *exchange) measureBody() error {
	if x.head.Length != wire.Chunked || rules.ExpectsBody(x.head.Method) {
		return nil
	}
	if len(x.body.look(1)) > 0 {
		return nil
	}
	if !errors.Is(x.body.err, io.EOF) {
		return x.body.err
	}
	x.head.Length = 0
	return nil
}

// maxGathered is the size of the largest body that is awaited whole before the request is sent, so
// that it is sent in one write.
const maxGathered = 16 << 10

// addBody adds the body to the request: whole if it is short, else as it comes.
func (x *exchange) addBody(c *relay.Call) error {
	length := x.head.Length
	switch {
	case length == 0:
		return nil
	case length < 0:
		c.How = relay.Chunked
		fallthrough
	case length > maxGathered:
		c.Body, c.Length = &x.body, max(length, 0)
		return nil
	}
	n := len(c.Request)
	c.Request = slices.Grow(c.Request, int(length))[:n+int(length)]
	_, err := io.ReadFull(&x.body, c.Request[n:])
	return err
}

// appendRequest appends the head that the upstream receives: the target that was counted, the
// fields that are forwarded, and what rules.Onward adds.
func (x *exchange) appendRequest(b []byte) []byte {
	head := &x.head
	onward := x.onwardOf(nil)
	x.call.Alone = onward.Alone

	b = append(append(append(append(b, head.Method...), ' '), x.Site.EscapedBase...), x.onward...)
	b = wire.AppendField(append(b, " HTTP/1.1\r\n"...), "Host", onward.Host)
	b, announced := x.appendForwarded(b)
	b = x.appendForwarding(b, &onward)
	switch {
	case head.Length == wire.Chunked:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
		if announced != "" {
			b = relay.AppendAnnounced(b, announced, x.withholds)
			x.call.Trailers = func() []wire.Field { return x.trailers(announced) }
		}
	case head.Length > 0 || rules.ExpectsBody(head.Method):
		b = append(strconv.AppendInt(append(b, "Content-Length: "...), head.Length, 10), "\r\n"...)
	}
	if onward.Alone {
		b = append(b, "Connection: close\r\n"...)
	}
	return append(b, "\r\n"...)
}

// onwardOf returns what rules.Onward adds to the request, which asks for an upgrade or not.
func (x *exchange) onwardOf(upgrade []string) rules.Onward {
	return x.c.engine.Onward(&rules.Head{
		Method: x.head.Method, Minor: 1, Host: x.head.Host, Length: x.head.Length, Peer: x.c.peer, Secure: x.c.secure,
		Proto: x.head.Values(rules.ForwardedProto), Upgrade: upgrade, Chains: x.c.chains,
	}, x.Site)
}

// appendForwarding appends the fields by which the upstream learns who is calling.
func (x *exchange) appendForwarding(b []byte, onward *rules.Onward) []byte {
	x.chain = x.caller.AppendChain(x.chain[:0])
	return x.c.engine.AppendForwarding(b, onward, x.chain)
}

// appendForwarded appends the fields that are forwarded as they came, and Te for a client that
// takes trailers. It returns the names of the trailers that the request announces.
func (x *exchange) appendForwarded(b []byte) (_ []byte, announced string) {
	plain := x.answer.WantsPlain()
	trailers := false
	for i := range x.head.Fields {
		f := &x.head.Fields[i]
		if !trailers && f.Name == "te" {
			b, trailers = append(b, "Te: trailers\r\n"...), true // which has no other value
		}
		if f.Name == "trailer" {
			announced += f.Value + ","
		}
		// hides is the quickest for the field of a token, which may look like a withheld one
		if x.hides(f) || !rules.IsForwarded(f.Name) || plain && f.Name == "accept-encoding" {
			continue
		}
		b = append(append(appendName(b, f.Name), f.Value...), "\r\n"...)
	}
	return b, announced
}

// hides reports whether a field is not forwarded because it may hold a token. One hidden line of
// Authorization hides all.
func (x *exchange) hides(f *wire.Field) bool {
	e := x.c.engine
	if !e.HidesSchemes() || f.Name != "authorization" {
		return e.HidesName(f.Name)
	}
	return slices.ContainsFunc(x.head.Values("Authorization"), func(v string) bool { return e.HidesField(f.Name, v) })
}

// withholds reports whether a trailer of the request is not forwarded.
func (x *exchange) withholds(name string) bool {
	return rules.IsWithheld(name) || x.c.engine.HidesName(name) || !wire.MayTrail(name)
}

// trailers returns the trailers of the request that are forwarded, of those that it announces.
func (x *exchange) trailers(announced string) (all []wire.Field) {
	x.c.mu.Lock()
	defer x.c.mu.Unlock()
	for _, f := range x.s.trailers {
		if rules.Names(announced, f.Name) && !x.withholds(f.Name) {
			all = append(all, wire.Field{Name: http.CanonicalHeaderKey(f.Name), Value: f.Value})
		}
	}
	return all
}

// appendName appends the name of a field as HTTP/1.1 usually has it, and what is between it and its
// value: backends that compare names byte by byte exist.
func appendName(b []byte, name string) []byte {
	upper := true
	for i := range len(name) {
		c := name[i]
		if upper && c >= 'a' && c <= 'z' {
			c -= 'a' - 'A'
		}
		upper = c == '-'
		b = append(b, c)
	}
	return append(b, ": "...)
}
