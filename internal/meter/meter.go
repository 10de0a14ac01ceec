// Package meter reads one number out of a message while its bytes pass: a member of a JSON body,
// or of the events of an event stream. It keeps a bounded number of bytes, whatever passes.
//
//	meter.go      Meter
//	json.go       a JSON text, byte by byte
//	number.go     its numbers
//	string.go     its strings, and the names that are compared with the path
//	lookalike.go  the names that other readers may take for those of the path
//	events.go     the lines of an event stream
package meter

import "strings"

// A Meter reads one body. The zero value reads nothing; use Reset first. It must not be used by two
// goroutines at a time. It is under 2 KiB large, and allocates only in Reset for another path than
// before.
type Meter struct {
	path   string
	kind   Kind
	json   scanner
	events events

	units int64 // of the last event that had the member
	told  bool  // that event's member was such a number
}

// A Kind is the form of a body.
type Kind uint8

const (
	// JSON is one JSON text.
	JSON Kind = iota
	// CallersJSON is a JSON text whose sender gains if its next reader reads another number. An
	// object that has a name of the path in another letter case, or with other "_" and "-", tells
	// nothing: that reader may take it for the name.
	CallersJSON
	// Events is a text/event-stream whose events have JSON as data. The last event that has the
	// member tells; null is as no member. Data that is no JSON object, such as [DONE], is skipped.
	Events
)

// Reset prepares m for another body, of which it is to read the member at path: names joined by
// dots.
func (m *Meter) Reset(path string, kind Kind) {
	if path != m.path {
		m.path, m.json.names = path, strings.Split(path, ".")
	}
	m.json.like.on = kind == CallersJSON
	m.kind, m.events, m.units, m.told = kind, events{}, 0, false
	m.json.reset()
}

// Write reads the next bytes of the body. It keeps nothing of p.
func (m *Meter) Write(p []byte) {
	switch {
	case m.path == "":
	case m.kind == Events:
		m.readLines(p)
	default:
		m.json.write(p)
	}
}

// Units returns what was read so far. ok is false if the body is not complete and valid so far, if
// it has no such member, or one that is not a whole number from 0 to 2^31-1 in plain digits, or if
// an object has one of the path's names twice. Of an event stream the last event that is complete
// counts, so that a stream which breaks off has told what it had told by then.
func (m *Meter) Units() (n int64, ok bool) {
	if m.kind != Events || m.tells() {
		return m.json.units()
	}
	return m.units, m.told
}
