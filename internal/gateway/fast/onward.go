package fast

import (
	"slices"
	"strconv"
	"strings"

	"github.com/weirlimit/weir/internal/gateway/relay"
	"github.com/weirlimit/weir/internal/gateway/rules"
	"github.com/weirlimit/weir/internal/wire"
)

// appendRequest appends the head that the upstream receives: the target that was counted, the
// fields that are forwarded, and what rules.Onward adds.
func (x *exchange) appendRequest(b []byte) []byte {
	head := &x.head
	onward := x.c.engine.Onward(&rules.Head{
		Method: head.Method, Minor: head.Minor, Host: head.Host, Length: head.Length, Peer: x.c.peer, Secure: x.c.engine.secure != nil,
		Proto: head.Values(rules.ForwardedProto), Upgrade: x.upgrade(), Chains: x.c.chains,
	}, x.Site)
	x.websocket, x.alone = onward.Websocket, onward.Alone

	b = append(append(append(append(b, head.Method...), ' '), x.Site.EscapedBase...), x.onward...)
	b = wire.AppendField(append(b, " HTTP/1.1\r\n"...), "Host", onward.Host)
	b, announced := x.appendForwarded(b)
	b = x.appendForwarding(b, &onward)
	if onward.Websocket {
		b = wire.AppendField(append(b, "Connection: Upgrade\r\n"...), "Upgrade", x.upgrade()[0])
	}
	switch {
	case head.Length == wire.Chunked:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
		if announced != "" {
			b = relay.AppendAnnounced(b, announced, x.withholds)
		}
	case head.Length > 0 || rules.ExpectsBody(head.Method):
		b = append(strconv.AppendInt(append(b, "Content-Length: "...), head.Length, 10), "\r\n"...)
	}
	if x.body.expects {
		b = append(b, "Expect: 100-continue\r\n"...)
	}
	if onward.Alone {
		b = append(b, "Connection: close\r\n"...)
	}
	return append(b, "\r\n"...)
}

// appendForwarding appends the fields by which the upstream learns who is calling.
func (x *exchange) appendForwarding(b []byte, onward *rules.Onward) []byte {
	x.chain = x.caller.AppendChain(x.chain[:0])
	return x.c.engine.AppendForwarding(b, onward, x.chain)
}

// appendForwarded appends the fields that are forwarded as they came, and Te for a client that
// takes trailers. It returns the names of the trailers that the request announces.
func (x *exchange) appendForwarded(b []byte) (_ []byte, announced string) {
	named := x.namesMore()
	plain := x.answer.WantsPlain()
	trailers := false
	for i := range x.head.Fields {
		f := &x.head.Fields[i]
		if !trailers && wire.EqualFold(f.Name, "Te") && rules.Names(f.Value, "trailers") {
			b, trailers = append(b, "Te: trailers\r\n"...), true
		}
		if wire.EqualFold(f.Name, "Trailer") {
			announced += f.Value + ","
		}
		// hides is the quickest for the field of a token, which may look like a withheld one
		if x.hides(f) || !rules.IsForwarded(f.Name) || named && x.head.Names(f.Name) || plain && wire.EqualFold(f.Name, "Accept-Encoding") {
			continue
		}
		b = wire.AppendField(b, f.Name, f.Value)
	}
	return b, announced
}

// hides reports whether a field is not forwarded because it may hold a token. One hidden line of
// Authorization hides all.
func (x *exchange) hides(f *wire.Field) bool {
	e := x.c.engine
	if !e.HidesSchemes() || !wire.EqualFold(f.Name, "Authorization") {
		return e.HidesName(f.Name)
	}
	return slices.ContainsFunc(x.head.Values("Authorization"), func(v string) bool { return e.HidesField(f.Name, v) })
}

// withholds reports whether a trailer of the request is not forwarded.
func (x *exchange) withholds(name string) bool {
	return rules.IsWithheld(name) || x.c.engine.HidesName(name) || !wire.MayTrail(name)
}

// upgrade returns the lines of Upgrade; nil if Connection does not name it.
func (x *exchange) upgrade() []string {
	if lines := x.head.Values("Upgrade"); lines != nil && x.head.Names("Upgrade") {
		return lines
	}
	return nil
}

// namesMore reports whether Connection names anything but keep-alive and close.
func (x *exchange) namesMore() bool {
	for i := range x.head.Fields {
		f := &x.head.Fields[i]
		if wire.EqualFold(f.Name, "Connection") &&
			!strings.EqualFold(f.Value, "keep-alive") && !strings.EqualFold(f.Value, "close") {
			return true
		}
	}
	return false
}
