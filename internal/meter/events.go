package meter

import "bytes"

// events is the place in an event stream (the HTML standard, section 9.2.6). Only the field data is
// read.
type events struct {
	mark    int // the bytes of a byte order mark that the stream began with
	in      part
	name    int  // the bytes of the line's name, which are those of "data" so far
	afterCR bool // a LF that comes next belongs to the end of the line before
	lines   int  // the lines of data that the event has
}

// A part is a part of a line.
type part uint8

const (
	inMark part = iota
	inName
	afterColon // of data
	inData
	inOther
)

const (
	byteOrderMark = "\xef\xbb\xbf"
	dataName      = "data"
)

func (m *Meter) readLines(p []byte) {
	e := &m.events
	for len(p) > 0 {
		if c := p[0]; e.afterCR {
			if e.afterCR = false; c == '\n' {
				p = p[1:]
				continue
			}
		}
		switch e.in {
		case inMark:
			p = p[e.readMark(p[0]):]
		case inName:
			m.readName(p[0])
			p = p[1:]
		case afterColon:
			if e.in = inData; p[0] == ' ' {
				p = p[1:]
			}
		default:
			p = p[m.readRest(p):]
		}
	}
}

// readMark reads what may be a byte of a byte order mark, and returns the number of bytes read.
func (e *events) readMark(c byte) int {
	if e.mark < len(byteOrderMark) && c == byteOrderMark[e.mark] {
		e.mark++
		return 1
	}
	if e.in = inName; 0 < e.mark && e.mark < len(byteOrderMark) {
		e.in = inOther // what looked like a mark is the beginning of a name
	}
	return 0
}

// readName reads a byte of a line up to its colon.
func (m *Meter) readName(c byte) {
	e := &m.events
	switch {
	case c == '\r' || c == '\n':
		m.endLine(c)
	case c == ':' && e.name == len(dataName):
		m.beginData()
		e.in = afterColon
	case e.name < len(dataName) && c == dataName[e.name]:
		e.name++
	default:
		e.in = inOther
	}
}

// readRest reads what comes after the colon, or of a line that is not read, and returns the number
// of bytes read.
func (m *Meter) readRest(p []byte) int {
	rest := p
	if i := bytes.IndexByte(rest, '\n'); i >= 0 {
		rest = rest[:i]
	}
	if i := bytes.IndexByte(rest, '\r'); i >= 0 {
		rest = rest[:i]
	}
	if m.events.in == inData {
		m.json.write(rest)
	}
	if len(rest) == len(p) {
		return len(p)
	}
	m.endLine(p[len(rest)])
	return len(rest) + 1
}

// beginData begins a line of data. The lines of an event are joined by LF.
func (m *Meter) beginData() {
	if m.events.lines == 0 {
		m.json.reset()
	} else {
		m.json.write([]byte{'\n'})
	}
	m.events.lines = min(m.events.lines+1, 2)
}

// endLine ends a line. An empty line ends the event.
func (m *Meter) endLine(c byte) {
	e := &m.events
	switch {
	case e.in != inName:
	case e.name == len(dataName): // without a colon, the value is empty
		m.beginData()
	case e.name == 0:
		m.endEvent()
	}
	e.in, e.name, e.afterCR = inName, 0, c == '\r'
}

func (m *Meter) endEvent() {
	if m.tells() {
		m.units, m.told = m.json.units()
	}
	m.events.lines = 0
}

// tells reports whether the event that is read is complete so far, and has the member.
func (m *Meter) tells() bool { return m.events.lines > 0 && m.json.isWhole() && m.json.found }
