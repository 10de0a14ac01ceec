package http2

import (
	"errors"
	"io"

	"golang.org/x/net/http2"

	"github.com/weirlimit/weir/internal/wire"
)

// greet sends the settings that a connection begins with.
func (c *conn) greet() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.appendSettings(
		http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: uint32(c.engine.Limits.Streams)},
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: streamWindow},
		http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: uint32(c.engine.Limits.HeaderBytes)},
		http2.Setting{ID: http2.SettingEnableConnectProtocol, Val: 1},
	)
	c.appendWindowUpdate(0, connWindow-usualWindow)
}

// readFrame reads the next frame, and does what it asks for. The error ends the connection.
func (c *conn) readFrame() error {
	if c.framer == nil {
		c.framer = http2.NewFramer(nil, &c.in)
		c.framer.SetMaxReadFrameSize(largestFrame)
		c.framer.SetReuseFrames()
	}
	if c.midway.Load() == 0 {
		c.midway.Store(c.engine.tick.Load() + 1)
	}
	h, err := c.framer.ReadFrameHeader()
	if err != nil {
		return err
	}
	if h.Type == http2.FrameData {
		c.midway.Store(0) // its times are those of bodies
	}
	f, err := c.framer.ReadFrameForHeader(h)
	if err == nil {
		err = c.handle(f)
	} else {
		err = unparsed(h.Type, err)
	}
	if c.block.id == 0 { // else the rest of a head is awaited
		c.midway.Store(0)
	}
	if err != nil {
		err = c.resetFor(err)
	}
	if err == nil {
		err = c.checkFlood()
	}
	if err == nil {
		c.awaitRoom()
	}
	return err
}

// unparsed returns what the error of a frame that cannot be parsed means for the connection. It
// ends if the fields of a head were not decoded, because the next ones cannot be then.
func unparsed(kind http2.FrameType, err error) error {
	var ofStream http2.StreamError
	switch {
	case errors.As(err, &ofStream) && kind == http2.FrameHeaders:
		return http2.ConnectionError(ofStream.Code)
	case errors.Is(err, io.ErrUnexpectedEOF): // also of a frame that is shorter than its padding
		return http2.ConnectionError(http2.ErrCodeFrameSize)
	}
	return err
}

// resetFor ends a stream with an error. It returns an error of the whole connection.
func (c *conn) resetFor(cause error) error {
	var err http2.StreamError
	if !errors.As(cause, &err) {
		return cause
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bounds.count(c, costOfReset)
	if s := c.streams[err.StreamID]; s != nil && !s.gone {
		c.reset(s, err.Code)
		return nil
	}
	if c.isIdle(err.StreamID) {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	c.resets.add(err.StreamID)
	c.appendReset(err.StreamID, err.Code)
	return nil
}

// isIdle reports whether a stream was never opened. The mutex is held.
func (c *conn) isIdle(id uint32) bool { return id > c.last || id%2 == 0 }

// handle does what a frame asks for.
func (c *conn) handle(f http2.Frame) error {
	if !c.greeted {
		if s, ok := f.(*http2.SettingsFrame); !ok || s.IsAck() {
			return http2.ConnectionError(http2.ErrCodeProtocol)
		}
		c.greeted = true
	}
	switch f := f.(type) {
	case *http2.HeadersFrame:
		return c.onHeaders(f)
	case *http2.ContinuationFrame:
		return c.onContinuation(f)
	case *http2.DataFrame:
		return c.onData(f)
	case *http2.PushPromiseFrame:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if w, ok := f.(*http2.WindowUpdateFrame); ok {
		return c.onWindowUpdate(w)
	}
	switch f := f.(type) {
	case *http2.RSTStreamFrame:
		return c.onReset(f)
	case *http2.SettingsFrame:
		return c.onSettings(f)
	case *http2.PingFrame:
		c.onPing(f)
	case *http2.PriorityFrame: // which RFC 9113, section 5.3.1, allows to ignore
		c.bounds.count(c, 1)
		if f.StreamDep == f.StreamID {
			return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeProtocol}
		}
	default:
		c.bounds.count(c, 1)
	}
	return nil
}

func (c *conn) onData(f *http2.DataFrame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isIdle(f.StreamID) {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	s, size := c.streams[f.StreamID], int64(f.Length)
	if err := c.take(s, size); err != nil {
		return err
	}
	ofReset := (s == nil || s.gone) && c.resets.has(f.StreamID)
	if size < cheapData && (ofReset || len(f.Data()) == 0 && !f.StreamEnded()) {
		c.bounds.count(c, 1)
	}
	switch {
	case ofReset:
		c.giveBack(size)
		return nil
	case s == nil || s.ended || s.gone:
		c.giveBack(size)
		return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeStreamClosed}
	}
	return s.onData(f.Data(), size, f.StreamEnded())
}

// onData takes a piece of the body, of size bytes with its padding. The mutex is held.
func (s *stream) onData(p []byte, size int64, ends bool) error {
	s.came += int64(len(p))
	if s.length >= 0 && (s.came > s.length || ends && s.came < s.length) {
		s.c.giveBack(size)
		s.resetMalformed(errBadBody)
		return nil
	}
	s.ended = ends
	if s.discards {
		s.giveBack(size)
		s.discarded += size
	} else {
		s.buffer, s.at = appendBody(s.buffer, s.at, p)
		s.giveBack(size - int64(len(p)))
		if len(p) >= cheapData {
			s.c.bounds.progress(len(p))
		}
		wake(s.readable)
	}
	switch {
	case s.ended && s.over:
		s.c.remove(s)
	case s.discarded > maxDiscarded && s.over:
		s.c.reset(s, http2.ErrCodeNo)
	}
	return nil
}

// The functions below are called with the mutex held.

func (c *conn) onWindowUpdate(f *http2.WindowUpdateFrame) error {
	c.bounds.countUpdate(c)
	const most = 1<<31 - 1
	if f.StreamID == 0 {
		if c.window += int64(f.Increment); c.window > most {
			return http2.ConnectionError(http2.ErrCodeFlowControl)
		}
		c.wakeAll()
		return nil
	}
	s := c.streams[f.StreamID]
	switch {
	case s != nil:
		if s.window += int64(f.Increment); s.window > most {
			return http2.StreamError{StreamID: s.id, Code: http2.ErrCodeFlowControl}
		}
		wake(s.writable)
	case c.isIdle(f.StreamID):
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	return nil
}

func (c *conn) onReset(f *http2.RSTStreamFrame) error {
	c.bounds.count(c, costOfReset)
	if s := c.streams[f.StreamID]; s != nil {
		s.endByClient()
	} else if c.isIdle(f.StreamID) {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	return nil
}

func (c *conn) onSettings(f *http2.SettingsFrame) error {
	c.bounds.count(c, 1)
	if f.IsAck() {
		return nil
	}
	err := f.ForeachSetting(func(s http2.Setting) error {
		if err := s.Valid(); err != nil {
			return err
		}
		switch s.ID {
		case http2.SettingInitialWindowSize:
			return c.changeWindows(int64(s.Val))
		case http2.SettingMaxFrameSize:
			c.maxFrame = int(s.Val)
		}
		return nil
	})
	if err == nil {
		c.appendSettingsAck()
		c.wakeAll()
	}
	return err
}

// changeWindows changes the window that streams begin with, and those of all streams with it (RFC
// 9113, section 6.9.2).
func (c *conn) changeWindows(to int64) error {
	change := to - c.firstWindow
	c.firstWindow = to
	for _, s := range c.streams {
		if s.window += change; s.window > 1<<31-1 {
			return http2.ConnectionError(http2.ErrCodeFlowControl)
		}
	}
	return nil
}

func (c *conn) onPing(f *http2.PingFrame) {
	c.bounds.count(c, 1)
	switch {
	case !f.IsAck():
		c.appendPing(true, f.Data)
	case f.Data == farewell && c.ending.announced != 0:
		c.name()
	}
}

// onTrailers takes the trailers of a request, which end its stream.
func (s *stream) onTrailers(fields []wire.Field) error {
	if s.length >= 0 && s.came != s.length {
		s.resetMalformed(errBadBody)
		return nil
	}
	s.ended, s.trailers = true, fields
	wake(s.readable)
	if s.over {
		s.c.remove(s)
	}
	return nil
}
