package http2

import (
	"encoding/binary"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/internal/gateway/rules"
)

// sending is what goes to the client. Frames are appended to a buffer, and one goroutine at a time
// writes it out: so one record of TLS, and one system call, carry the answers of several streams.
// The connection's mutex guards it.
type sending struct {
	out     []byte // frames to be written; nil: none
	writing bool   // a goroutine writes
	broken  error  // why nothing can be written any more
	// of the mutex: bytes were written, or the writing has ended
	room *sync.Cond

	window      int64 // how much of all bodies the client takes
	firstWindow int64 // of each new stream
	maxFrame    int   // the size of the largest frame that the client takes
	waiting     []*stream

	encoder *hpack.Encoder // writes to fields; nil while the connection rests
	fields  encoded
	known   *[16]encodedField // fields of earlier answers, by name; nil: there were none
}

// An encodedField is a field of an earlier answer. Without a table, a field is encoded alike in
// every answer, and most of them recur: to look one up costs a fifth of encoding it.
type encodedField struct {
	name, value string
	block       []byte
}

// maxKnown is how long the value of a field may be that is kept for later answers.
const maxKnown = 64

// encoded is a head that is being encoded.
type encoded struct{ block []byte }

// Write is io.Writer's.
func (e *encoded) Write(p []byte) (int, error) {
	e.block = append(e.block, p...)
	return len(p), nil
}

func (w *sending) begin(c *conn) {
	w.room = sync.NewCond(&c.mu)
	w.window, w.firstWindow, w.maxFrame = usualWindow, usualWindow, largestFrame
}

// beginEncoder makes the encoder. It has no table: what would be in it is different in nearly every
// answer, and the search costs more than the bytes. Its first block begins with that size of the
// table, which a client may get again and again (RFC 7541, section 4.2).
func (w *sending) beginEncoder() {
	w.encoder = hpack.NewEncoder(&w.fields)
	w.encoder.SetMaxDynamicTableSizeLimit(0)
}

// How much may be in the buffer: bodies fill it up to the first, which is four records of TLS;
// above the second, nothing more is read from the client, whose frames may ask for answers.
const (
	maxBodies = 64 << 10
	maxQueued = 128 << 10
)

// The sizes of the buffers that are used again: one for answers that are short, and one for bodies.
const (
	usualBuffer = 16 << 10
	bodyBuffer  = maxBodies
)

var (
	buffers     = sync.Pool{New: func() any { return new([usualBuffer]byte) }}
	bodyBuffers = sync.Pool{New: func() any { return new([bodyBuffer]byte) }}
)

// isReady reports whether something is ready to be written, and nobody writes. The mutex is held.
func (c *conn) isReady() bool { return len(c.out) > 0 && !c.writing && c.broken == nil }

// flush writes what is in the buffer, unless another goroutine does.
func (c *conn) flush() {
	c.mu.Lock()
	if !c.isReady() {
		c.mu.Unlock()
		return
	}
	c.writing = true
	c.mu.Unlock()
	c.write()
}

// flushRead is flush for the read loop, which writes no more than a little: what a client sends is
// read while it takes an answer.
func (c *conn) flushRead() {
	c.mu.Lock()
	ready, much := c.isReady(), len(c.out) > largestFrame
	c.writing = c.writing || ready
	c.mu.Unlock()
	switch {
	case ready && much:
		c.engine.serving.Go(c.write)
	case ready:
		c.write()
	}
}

// flushSoon is flush after the goroutines that are ready have run: often they add the answers of
// other streams.
func (c *conn) flushSoon() {
	c.mu.Lock()
	if !c.isReady() {
		c.mu.Unlock()
		return
	}
	c.writing = true
	c.mu.Unlock()
	runtime.Gosched()
	c.write()
}

// maxTurns is how many buffers a goroutine writes before another one continues: it has more to do
// than to write for others.
const maxTurns = 4

// write writes until the buffer is empty. The caller has set writing.
func (c *conn) write() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for turn := 0; len(c.out) > 0 && c.broken == nil; turn++ {
		if turn == maxTurns {
			c.engine.serving.Go(c.write)
			return
		}
		out := c.out
		c.out = nil
		c.wakeAll()
		c.mu.Unlock()
		_, err := c.Conn.Write(out)
		putBuffer(out)
		c.mu.Lock()
		if err != nil {
			c.fail(err)
		}
		c.room.Broadcast()
	}
	c.writing = false
	c.room.Broadcast()
}

func putBuffer(b []byte) {
	switch cap(b) {
	case usualBuffer:
		buffers.Put((*[usualBuffer]byte)(b[:usualBuffer]))
	case bodyBuffer:
		bodyBuffers.Put((*[bodyBuffer]byte)(b[:bodyBuffer]))
	}
}

// drop frees what is not going to be written. The mutex is held.
func (c *conn) drop() {
	c.out = nil
	c.wakeAll()
	c.room.Broadcast()
}

// wakeAll wakes the streams that wait to send. The mutex is held.
func (c *conn) wakeAll() {
	for i, s := range c.waiting {
		wake(s.writable)
		s.waits = false
		c.waiting[i] = nil
	}
	c.waiting = c.waiting[:0]
}

// awaitRoom waits until the buffer has room for what the next frame may be answered.
func (c *conn) awaitRoom() {
	c.mu.Lock()
	much := len(c.out) > largestFrame
	c.mu.Unlock()
	if !much {
		return
	}
	c.flushRead()
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.out) > maxQueued && c.writing && c.broken == nil {
		c.room.Wait()
	}
}

// appendFrame appends the header of a frame. The mutex is held.
func (c *conn) appendFrame(kind http2.FrameType, flags http2.Flags, id uint32, length int) {
	if c.out == nil {
		c.out = buffers.Get().(*[usualBuffer]byte)[:0]
	}
	c.out = append(c.out, byte(length>>16), byte(length>>8), byte(length), byte(kind), byte(flags))
	c.out = binary.BigEndian.AppendUint32(c.out, id)
}

// The frames below are appended with the mutex held.

func (c *conn) appendSettings(all ...http2.Setting) {
	c.appendFrame(http2.FrameSettings, 0, 0, 6*len(all))
	for _, s := range all {
		c.out = binary.BigEndian.AppendUint16(c.out, uint16(s.ID))
		c.out = binary.BigEndian.AppendUint32(c.out, s.Val)
	}
}

func (c *conn) appendSettingsAck() { c.appendFrame(http2.FrameSettings, http2.FlagSettingsAck, 0, 0) }

func (c *conn) appendPing(ack bool, data [8]byte) {
	var flags http2.Flags
	if ack {
		flags = http2.FlagPingAck
	}
	c.appendFrame(http2.FramePing, flags, 0, len(data))
	c.out = append(c.out, data[:]...)
}

func (c *conn) appendWindowUpdate(id, n uint32) {
	c.appendFrame(http2.FrameWindowUpdate, 0, id, 4)
	c.out = binary.BigEndian.AppendUint32(c.out, n)
}

func (c *conn) appendReset(id uint32, code http2.ErrCode) {
	c.appendFrame(http2.FrameRSTStream, 0, id, 4)
	c.out = binary.BigEndian.AppendUint32(c.out, uint32(code))
}

func (c *conn) appendGoAway(last uint32, code http2.ErrCode) {
	c.appendFrame(http2.FrameGoAway, 0, 0, 8)
	c.out = binary.BigEndian.AppendUint32(c.out, last)
	c.out = binary.BigEndian.AppendUint32(c.out, uint32(code))
}

func (c *conn) appendData(id uint32, p []byte, ends bool) {
	var flags http2.Flags
	if ends {
		flags = http2.FlagDataEndStream
	}
	if more := frameHeader + len(p); len(c.out)+more > max(cap(c.out), usualBuffer) && len(c.out)+more <= bodyBuffer {
		out := append(bodyBuffers.Get().(*[bodyBuffer]byte)[:0], c.out...)
		putBuffer(c.out)
		c.out = out
	}
	c.appendFrame(http2.FrameData, flags, id, len(p))
	c.out = append(c.out, p...)
}

// frameHeader is the size of a frame's header (RFC 9113, section 4.1).
const frameHeader = 9

// appendHead appends the head of an answer, or trailers if the status is 0.
func (c *conn) appendHead(id uint32, status int, fields rules.Fields, ends bool) {
	c.fields.block = c.fields.block[:0]
	if c.encoder == nil {
		c.beginEncoder()
	}
	if status != 0 {
		c.encode(":status", statuses[status])
	}
	for i := range fields {
		c.encode(lowered(fields[i].Name), fields[i].Value)
	}
	var flags http2.Flags
	if ends {
		flags = http2.FlagHeadersEndStream
	}
	block := c.fields.block
	for kind := http2.FrameHeaders; ; kind, flags = http2.FrameContinuation, 0 {
		part := block[:min(len(block), c.maxFrame)]
		block = block[len(part):]
		if len(block) == 0 {
			flags |= http2.FlagHeadersEndHeaders
		}
		c.appendFrame(kind, flags, id, len(part))
		if c.out = append(c.out, part...); len(block) == 0 {
			break
		}
	}
	if cap(c.fields.block) > usualBuffer {
		c.fields.block = nil
	}
}

// encode appends a field to the head that is being encoded.
func (c *conn) encode(name, value string) {
	if c.known == nil {
		c.known = new([16]encodedField)
	}
	known := &c.known[(len(name)+int(name[len(name)/2]))%len(c.known)]
	if known.value == value && known.name == name {
		c.fields.block = append(c.fields.block, known.block...)
		return
	}
	begin := len(c.fields.block)
	_ = c.encoder.WriteField(hpack.HeaderField{Name: name, Value: value}) // encoded never fails
	// before the first field of a head there may be a change of the table
	if begin > 0 && len(value) <= maxKnown {
		*known = encodedField{name, value, append(known.block[:0], c.fields.block[begin:]...)}
	}
}

// statuses are the statuses of answers as text.
var statuses = func() (all [1000]string) {
	for i := 100; i < len(all); i++ {
		all[i] = string([]byte{byte('0' + i/100), byte('0' + i/10%10), byte('0' + i%10)})
	}
	return all
}()

// lowered returns a field's name in lower case, as HTTP/2 has it. Most answers have only names that
// are known.
func lowered(name string) string {
	if known, ok := lowerNames[name]; ok {
		return known
	}
	return strings.ToLower(name)
}

var lowerNames = func() map[string]string {
	all := make(map[string]string)
	for _, name := range append([]string{
		"Accept-Ranges", "Access-Control-Allow-Credentials", "Access-Control-Allow-Headers", "Access-Control-Allow-Methods",
		"Access-Control-Allow-Origin", "Access-Control-Expose-Headers", "Access-Control-Max-Age", "Age", "Allow", "Alt-Svc",
		"Cache-Control", "Content-Disposition", "Content-Encoding", "Content-Language", "Content-Length", "Content-Location", "Content-Range",
		"Content-Security-Policy", "Content-Type", "ETag", "Etag", "Expires", "Last-Modified", "Link", "Location", "Pragma",
		"RateLimit", "RateLimit-Policy", "Referrer-Policy", "Retry-After", "Server", "Set-Cookie", "Strict-Transport-Security", "Trailer",
		"Vary", "Via", "WWW-Authenticate", "X-Content-Type-Options", "X-Frame-Options", "X-Powered-By", "X-Request-Id", "X-Weir-Denial",
	}, answer.Names[:]...) {
		all[name] = strings.ToLower(name)
		all[strings.ToLower(name)] = strings.ToLower(name)
	}
	return all
}()
