package answer

import (
	"strings"
	"sync/atomic"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/headers"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/meter"
)

// What a request is charged may follow from the request itself (weir.Limiter.Reserve). A Judge
// reads that of a question with a Caller. A door whose questions have Keys sets Question.Reporter.

// MaxRequestRead is the max number of bytes of a request's body that are read for what it reports
// of its own cost. A longer body reports nothing.
const MaxRequestRead = 256 << 10

// maxReading is the max number of bytes of all requests' bodies that a Judge waits for at a time:
// callers that send slowly must not fill the memory. A request beyond it reports nothing, so it
// reserves the most.
const maxReading = 64 << 20

// reading counts the bytes of bodies that are being read. The zero value is ready.
type reading struct{ bytes atomic.Int64 }

// begin reports whether n more bytes may be read. If so, end must follow.
func (r *reading) begin(n int64) bool {
	if r.bytes.Add(n) <= maxReading {
		return true
	}
	r.bytes.Add(-n)
	return false
}

func (r *reading) end(n int64) { r.bytes.Add(-n) }

// reservesFrom returns where a request that m covers reports what is to be reserved for it. It is
// the zero Reading if the request need not be read.
func reservesFrom(m weir.Match) weir.Reading {
	l := m.Limiter()
	if l == nil {
		return weir.Reading{}
	}
	return l.Reserve.From
}

// A reporter reads what a request with a Caller reports of its own cost.
type reporter struct {
	judge    *Judge
	caller   *identity.Caller
	bodyRead bool

	last  weir.Reading // that was read last; the others are of it
	units int64
	ok    bool
}

// Waits implements weir.Reporter.
func (r *reporter) Waits(from weir.Reading) bool {
	if from.Form != weir.ReadJSON || r.bodyRead {
		return false
	}
	size, ok := sizeToRead(r.caller.Request())
	return ok && size > 0
}

// Reported implements weir.Reporter.
func (r *reporter) Reported(from weir.Reading) (units int64, ok bool) {
	switch {
	case from.Form == weir.ReadHeader:
		return unitsOf(r.caller.Request().Header(from.Name))
	case r.bodyRead && from == r.last:
		return r.units, r.ok
	}
	body, read := r.body()
	if !read {
		return 0, false
	}
	var m meter.Meter
	m.Reset(from.Name, meter.CallersJSON)
	m.Write(body)
	r.bodyRead, r.last = true, from
	r.units, r.ok = m.Units()
	return r.units, r.ok
}

// forget drops the request, whose memory the Answer must not keep.
func (r *reporter) forget() { *r = reporter{} }

// body returns the body of the request, if it is JSON of at most MaxRequestRead bytes, and the
// Judge may wait for it. A longer one is returned empty.
func (r *reporter) body() (body []byte, read bool) {
	request := r.caller.Request()
	size, ok := sizeToRead(request)
	if !ok || !r.judge.reading.begin(size) {
		return nil, false
	}
	defer r.judge.reading.end(size)
	if body = request.Body(MaxRequestRead + 1); len(body) > MaxRequestRead {
		return nil, true
	}
	return body, true
}

// sizeToRead returns how many bytes the body of a request has at most. ok is false for a body that
// is not read: it is declared too long, or not as plain JSON.
func sizeToRead(r identity.Request) (size int64, ok bool) {
	kind, ok := kindOf(r.Header("Content-Type"), r.Header("Content-Encoding"))
	if !ok || kind != meter.JSON {
		return 0, false
	}
	length := r.Header("Content-Length")
	if len(length) != 1 {
		return MaxRequestRead, true
	}
	size, err := headers.ParseInt("Content-Length", length[0])
	return size, err == nil && size <= MaxRequestRead
}

// unitsOf reads the lines of a field that has a number of units. A field that is sent twice, or is
// not a whole number in plain digits, reports nothing.
func unitsOf(lines []string) (units int64, ok bool) {
	if len(lines) != 1 {
		return 0, false
	}
	value := lines[0]
	if value != "" && (value[0] <= ' ' || value[len(value)-1] <= ' ') {
		value = strings.Trim(value, " \t")
	}
	units, err := headers.ParseInt("", value)
	return units, err == nil && units <= weir.MaxLimit
}
