package answer

import (
	"context"
	"fmt"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/meter"
)

// What an admitted request has cost may follow from its response, and it may hold a slot until it
// has ended (weir.Limiter.Settles). A door that has an Answer with Status 0 then calls, in this
// order:
//
//	judge.Head    when the head of the handler's response is known, before it reads any field of the
//	              Answer
//	judge.Read    for each part of the body that it passes on, if Head returned true
//	judge.Served  before it sends the last bytes, if it knows which these are
//	judge.End     when the request has ended, in any way; the next use of the Answer is too late
//
// For other requests (Answer.Settles) these calls do nothing, so a door may always make them. A
// handler that knows what it has spent has the door call judge.Spent at any time before End.
//
// One goroutine at a time may use an Answer.

// A response is what the response to an admitted request has reported of its cost.
type response struct {
	meter   *meter.Meter // nil until a body is read
	metered bool         // it reads the body of this response
	begun   bool         // Head was called
	known   bool         // the cost is known: it is units
	pending bool         // and it takes effect with Head, or with End
	units   int64
	from    weir.Reading // the field that reported it; zero: the handler did
	body    weir.Reading // what the meter reads
}

func (r *response) reset() { r.metered, r.begun, r.known, r.pending = false, false, false, false }

// Settles reports whether Head or End has something to settle: the request's cost may change with
// its response, or it holds a slot.
func (a *Answer) Settles() bool { return a.scratch.Awaits() != 0 || a.response.pending }

// Cost returns the units that the request's limiter has charged before it was served, and those
// that it has cost, -1 if its response has not reported that. ok is false if the response cannot
// change that, and for a request that ends at the limiter. It is valid after Judge.End too. If the
// question has several Limiters, it is that of the binding one: use CostOf.
func (a *Answer) Cost() (reserved, used int64, ok bool) { return a.CostOf(a.Decision.Limiter()) }

// CostOf is Cost for one of several limiters, which Decision.Standings has.
func (a *Answer) CostOf(l *weir.Limiter) (reserved, used int64, ok bool) {
	reserved, used, ok = a.scratch.Cost(l)
	return reserved, used, ok && a.Status == 0
}

// WantsPlain reports whether the cost is in the body of the response, so that the handler must not
// compress it: the door drops Accept-Encoding from what the handler gets. It is about the limiters
// that are enforced: what is tried out changes nothing that a caller can see, and a compressed
// response reports nothing.
func (a *Answer) WantsPlain() bool { return a.scratch.ReadingInForce().Form == weir.ReadJSON }

// headSettles is what Head settles, which changes the fields.
const headSettles = weir.AwaitsStatus | weir.AwaitsCost

// reading returns where the response reports the cost; the zero Reading if it does not.
func (a *Answer) reading() weir.Reading {
	return a.scratch.Reading()
}

// Head reports the status of the handler's response, and the lines of a field. It settles what
// follows from them, and updates the fields of a. It returns true if the cost is in the body: the
// door then calls Read. Informational responses have no Head, but 101 has. Status 0 is that of a
// request whose sender has left before the head: it is counted whatever the status is.
func (j *Judge) Head(ctx context.Context, a *Answer, status int, lines func(name string) []string) (readsBody bool) {
	r := &a.response
	r.begun = true
	if a.scratch.Awaits()&headSettles == 0 && !r.pending {
		return false
	}
	j.decider.Answered(ctx, &a.scratch, status, &a.Decision)
	reading := a.reading()
	if reading.Form == weir.ReadHeader && !r.known {
		r.units, r.known = unitsOf(lines(reading.Name))
		r.known, r.from = r.known && !isTrailer(reading.Name, lines("Trailer")), reading
	}
	if r.known {
		j.spend(ctx, a)
	}
	if a.Outcome != Unlimited { // or only what is tried out is settled
		j.setFields(a)
	}
	reading = a.reading()
	if reading.Form != weir.ReadJSON || status == statusPartialContent {
		return false // of a body in parts, the caller chooses the part
	}
	return r.meterBody(reading, lines)
}

// isTrailer reports whether the lines of a Trailer field announce a field, so that its value comes
// after the body. The end of a response is too late to be reported by anything but the body itself.
func isTrailer(name string, announced []string) bool {
	for _, line := range announced {
		for trailer := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.Trim(trailer, " \t"), name) {
				return true
			}
		}
	}
	return false
}

// meterBody prepares to read the body, and reports whether it can be read.
func (r *response) meterBody(reading weir.Reading, lines func(name string) []string) bool {
	kind, ok := kindOf(lines("Content-Type"), lines("Content-Encoding"))
	if !ok {
		return false
	}
	if r.meter == nil {
		r.meter = new(meter.Meter)
	}
	r.meter.Reset(reading.Name, kind)
	r.metered, r.body = true, reading
	return true
}

// Read reads the next bytes of the body of the handler's response. It keeps nothing of p.
func (j *Judge) Read(a *Answer, p []byte) {
	if a.response.metered {
		a.response.meter.Write(p)
	}
}

// Served reports that the handler's response is complete, and has been read whole if Head returned
// true: what its body has reported is settled, and the request's slot is given back. A door that
// knows it calls Served before it sends the last bytes, so that a client with the whole response
// finds its budget settled and its slot free. Otherwise End does that. A connection that is taken
// over is never complete before its end. Served may be called again.
func (j *Judge) Served(ctx context.Context, a *Answer) {
	j.readEnd(ctx, a)
	j.decider.Served(ctx, &a.scratch)
}

// readEnd settles what the body has reported, which is read no more.
func (j *Judge) readEnd(ctx context.Context, a *Answer) {
	r := &a.response
	if !r.metered {
		return
	}
	r.metered = false
	units, ok := r.meter.Units()
	if !ok || a.scratch.Awaits()&weir.AwaitsCost == 0 {
		return
	}
	if !r.known {
		r.known, r.units, r.from = true, units, r.body
	}
	j.decider.SpentFrom(ctx, &a.scratch, r.body, units, &a.Decision)
}

// Spent reports what the request has cost, for a handler that knows it: 0 or more units. It counts
// before what the response reports itself, unless that has come already, and after the status: a
// request whose status is not counted costs nothing. It takes effect with Head; after that at once,
// or with End. It returns an error if it has no effect: units is negative, the request is settled
// already, or nothing was charged that can be changed.
func (j *Judge) Spent(ctx context.Context, a *Answer, units int64) error {
	r := &a.response
	switch {
	case units < 0:
		return fmt.Errorf("settle %d units: 0 or more are allowed", units)
	case r.known:
		return fmt.Errorf("settle %d units: the request is settled already, at %d: tell its cost once", units, r.units)
	case !a.scratch.CanSettle():
		return fmt.Errorf("settle %d units: nothing was charged that can be given back: "+
			"the store that counted the request cannot, or the request has ended", units)
	}
	r.known, r.pending, r.units, r.from = true, true, min(units, weir.MaxLimit), weir.Reading{}
	if r.begun {
		j.spend(ctx, a)
	}
	return nil
}

// spend settles the cost that was reported.
func (j *Judge) spend(ctx context.Context, a *Answer) {
	a.response.pending = false
	j.decider.SpentFrom(ctx, &a.scratch, a.response.from, a.response.units, &a.Decision)
}

// End reports that the request has ended. What its response has not reported of its cost by then
// stays as it was charged.
func (j *Judge) End(ctx context.Context, a *Answer) {
	j.readEnd(ctx, a)
	if a.response.pending {
		j.spend(ctx, a)
	}
	j.decider.End(ctx, &a.scratch)
}

// settleOwn settles a request that was charged, and that the judge answers itself after all: it
// lacks a credential.
func (j *Judge) settleOwn(ctx context.Context, a *Answer) {
	j.decider.Answered(ctx, &a.scratch, a.Status, &a.Decision)
	j.decider.End(ctx, &a.scratch)
}

// kindOf returns the kind of a body that can be read. A body that is compressed cannot.
func kindOf(contentType, encoding []string) (kind meter.Kind, ok bool) {
	if len(contentType) != 1 || len(encoding) > 0 && !strings.EqualFold(strings.Join(encoding, ""), "identity") {
		return 0, false
	}
	media, _, _ := strings.Cut(contentType[0], ";")
	media = strings.ToLower(strings.TrimSpace(media))
	switch {
	case media == "text/event-stream":
		return meter.Events, true
	case media == "application/json", strings.HasSuffix(media, "+json"):
		return meter.JSON, true
	}
	return 0, false
}
