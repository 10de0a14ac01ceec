package accesslog

// A record is one buffered line.
type record struct {
	Line
	in      *block // the block that its slices point into; nil if none
	size    int    // bytes of the line
	scratch []byte // values that are not contiguous in the line
}

// took sets how long the request took, if ok.
func (r *record) took(ns int64, ok bool) {
	if ok {
		r.Duration = ns
	}
}

// own returns a copy of value that lives as long as the record's line. It returns nil for nil.
func (r *record) own(value []byte) []byte {
	if value == nil {
		return nil
	}
	from := len(r.scratch)
	// if append reallocates, earlier values keep the old array
	r.scratch = append(r.scratch, value...)
	return r.scratch[from:len(r.scratch):len(r.scratch)]
}

const scratchKept = 4096 // max bytes of scratch to keep for the next line

// ready makes room for the given number of extra values.
func (r *record) ready(extras int) {
	if len(r.extra) != extras {
		r.extra = make([][]byte, extras)
	}
}

// reset empties the record, so that it refers to no block.
func (r *record) reset() {
	extra := r.extra
	clear(extra)
	if cap(r.scratch) > scratchKept {
		r.scratch = nil
	}
	*r = record{Line: Line{extra: extra}, scratch: r.scratch[:0]}
}

// An order buffers lines of one file and returns the earliest; of equal times, the one that is
// first in the file. A line that is in order costs one comparison and is queued. Only late lines
// are put in a heap.
type order struct {
	records []*[chunk]record // never moved, so growing copies nothing
	free    []int32          // indexes of unused records

	queue       []int32 // a ring; its length is a power of 2
	head, count int
	late        []int32 // a heap
}

const chunk = 64

// at returns the record with index i.
func (o *order) at(i int32) *record { return &o.records[uint32(i)/chunk][uint32(i)%chunk] }

func (o *order) len() int { return o.count + len(o.late) }

// room returns the index of an unused record.
func (o *order) room() int32 {
	if len(o.free) == 0 {
		first := int32(len(o.records)) * chunk
		o.records = append(o.records, new([chunk]record))
		for i := int32(chunk) - 1; i >= 0; i-- {
			o.free = append(o.free, first+i)
		}
	}
	n := len(o.free) - 1
	i := o.free[n]
	o.free = o.free[:n]
	return i
}

// push buffers a filled record.
func (o *order) push(i int32) {
	if o.count > 0 && o.at(i).Time < o.at(o.last()).Time {
		o.pushLate(i)
		return
	}
	o.enqueue(i)
}

func (o *order) last() int32 { return o.queue[(o.head+o.count-1)&(len(o.queue)-1)] }

// enqueue appends a filled record to the queue.
func (o *order) enqueue(i int32) {
	if o.count == len(o.queue) {
		bigger := make([]int32, max(16, 2*o.count))
		for n := range o.count {
			bigger[n] = o.queue[(o.head+n)&(len(o.queue)-1)]
		}
		o.queue, o.head = bigger, 0
	}
	o.queue[(o.head+o.count)&(len(o.queue)-1)] = i
	o.count++
}

// first returns the index of the earliest record. There must be one.
func (o *order) first() int32 {
	if len(o.late) == 0 {
		return o.queue[o.head]
	}
	if o.count > 0 && !o.before(o.late[0], o.queue[o.head]) {
		return o.queue[o.head]
	}
	return o.late[0]
}

// pop removes the earliest record and returns its index. The caller must drop it after use.
func (o *order) pop() int32 {
	i := o.first()
	if o.count > 0 && i == o.queue[o.head] {
		o.head = (o.head + 1) & (len(o.queue) - 1)
		o.count--
		return i
	}
	last := len(o.late) - 1
	o.late[0] = o.late[last]
	o.late = o.late[:last]
	for at := 0; ; {
		child := 2*at + 1
		if child >= last {
			break
		}
		if child+1 < last && o.before(o.late[child+1], o.late[child]) {
			child++
		}
		if !o.before(o.late[child], o.late[at]) {
			break
		}
		o.late[at], o.late[child] = o.late[child], o.late[at]
		at = child
	}
	return i
}

func (o *order) pushLate(i int32) {
	o.late = append(o.late, i)
	for at := len(o.late) - 1; at > 0; {
		parent := (at - 1) / 2
		if !o.before(o.late[at], o.late[parent]) {
			return
		}
		o.late[at], o.late[parent] = o.late[parent], o.late[at]
		at = parent
	}
}

func (o *order) before(i, j int32) bool {
	a, b := o.at(i), o.at(j)
	return a.Time < b.Time || a.Time == b.Time && a.Number < b.Number
}

// drop makes a record available for another line.
func (o *order) drop(i int32) {
	o.at(i).reset()
	o.free = append(o.free, i)
}

// held calls f for every buffered record.
func (o *order) held(f func(r *record)) {
	for n := range o.count {
		f(o.at(o.queue[(o.head+n)&(len(o.queue)-1)]))
	}
	for _, i := range o.late {
		f(o.at(i))
	}
}

// values calls f for every value of the record's line.
func (r *record) values(f func(value *[]byte)) {
	for _, value := range [...]*[]byte{&r.Peer, &r.Method, &r.Target, &r.Host, &r.UserAgent, &r.Agent, &r.Cost} {
		f(value)
	}
	for i := range r.extra {
		f(&r.extra[i])
	}
}

// length returns the total bytes of the values.
func (r *record) length() (n int) {
	r.values(func(value *[]byte) { n += len(*value) })
	return n
}

// move copies the values to the beginning of text and returns their total bytes.
func (r *record) move(text []byte) (n int) {
	r.values(func(value *[]byte) {
		if *value != nil {
			moved := text[n : n+copy(text[n:], *value)]
			n += len(*value)
			*value = moved
		}
	})
	return n
}
