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
// reads that of a question with a Caller. A door whose questions have Keys sets Question.Cost:
//
//	if from := judge.ReservesFrom(match); from != (weir.Reading{}) {
//		units, told := …
//		question.Cost = judge.ReserveCost(match, units, told)
//	}

// MaxRequestRead is the max number of bytes of a request's body that are read for what it tells of
// its own cost. A longer body tells nothing.
const MaxRequestRead = 256 << 10

// maxReading is the max number of bytes of all requests' bodies that a Judge waits for at a time:
// callers that send slowly must not fill the memory. A request beyond it tells nothing, so it
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

// ReservesFrom returns where a request that m covers tells what is to be reserved for it. It is the
// zero Reading if the request need not be read.
func (j *Judge) ReservesFrom(m weir.Match) weir.Reading {
	l := m.Limiter()
	if l == nil {
		return weir.Reading{}
	}
	return l.Reserve.From
}

// ReserveCost returns the Question.Cost of a request that m covers, and that tells units. If told
// is false, it is the limiter's own, which is the most that such a request can cost.
func (j *Judge) ReserveCost(m weir.Match, units int64, told bool) int64 {
	l := m.Limiter()
	if l == nil || !told {
		return 0
	}
	return l.Reserve.Units(units, max(l.Cost, 1))
}

// An asked is a request that tells what it reserves. Its body is read for the limiter in force
// alone, since a request must not wait for what it is only tried out under.
type asked struct {
	judge   *Judge
	request identity.Request
	reads   weir.Reading // of the limiter in force
	known   bool         // units and told are those of reads
	units   int64
	told    bool
}

// Told implements weir.Teller.
func (a *asked) Told(from weir.Reading) (units int64, told bool) {
	switch {
	case from != a.reads:
		if from.Form == weir.ReadJSON && a.reads.Form != weir.ReadJSON {
			return 0, false
		}
		return a.judge.requestUnits(from, a.request)
	case !a.known:
		a.units, a.told = a.judge.requestUnits(from, a.request)
		a.known = true
	}
	return a.units, a.told
}

// forget drops the request, whose memory the Answer must not keep.
func (a *asked) forget() { *a = asked{} }

// requestUnits reads what a request tells of its own cost.
func (j *Judge) requestUnits(from weir.Reading, r identity.Request) (units int64, told bool) {
	if from.Form == weir.ReadHeader {
		return unitsOf(r.Header(from.Name))
	}
	kind, ok := kindOf(r.Header("Content-Type"), r.Header("Content-Encoding"))
	if !ok || kind != meter.JSON {
		return 0, false
	}
	size := int64(MaxRequestRead)
	if length := r.Header("Content-Length"); len(length) == 1 {
		n, err := headers.ParseInt("Content-Length", length[0])
		if err != nil || n > MaxRequestRead {
			return 0, false
		}
		size = n
	}
	if !j.reading.begin(size) {
		return 0, false
	}
	defer j.reading.end(size)
	body := r.Body(MaxRequestRead + 1)
	if len(body) > MaxRequestRead {
		return 0, false
	}
	var m meter.Meter
	m.Reset(from.Name, meter.JSON)
	m.Write(body)
	return m.Units()
}

// unitsOf reads the lines of a field that has a number of units. A field that is sent twice, or is
// not a whole number in plain digits, tells nothing.
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
