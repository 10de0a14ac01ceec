package replay

// maxPoints is the maximum number of points of a Series.
const maxPoints = 500

// A timeline divides time for all series at once: in steps of a second, and of two, four and so on
// as the log continues.
type timeline struct {
	start  int64 // Unix seconds; a multiple of step
	step   int64 // 0: no request so far
	second int64 // the present second
	slot   int   // the index of its point
	all    []*points
}

// points are the counts of each step.
type points struct{ requests, refused []int64 }

func (t *timeline) newPoints() *points {
	p := new(points)
	t.all = append(t.all, p)
	return p
}

// at advances to a second.
func (t *timeline) at(second int64) {
	if second == t.second && t.step > 0 {
		return
	}
	if t.step == 0 {
		t.start, t.step = second, 1
	}
	t.second = second
	for (second-t.start)/t.step >= maxPoints {
		t.double()
	}
	t.slot = int((second - t.start) / t.step)
}

func (t *timeline) double() {
	start, step := t.start-t.start%(2*t.step), 2*t.step
	for _, p := range t.all {
		p.requests = fold(p.requests, (t.start-start)/t.step)
		p.refused = fold(p.refused, (t.start-start)/t.step)
	}
	t.start, t.step = start, step
}

// fold adds up each pair of points. If shift is 1 the first point is the second of its pair.
func fold(p []int64, shift int64) []int64 {
	n := 0
	for i, v := range p {
		to := (i + int(shift)) / 2
		p[i] = 0
		p[to] += v
		n = to + 1
	}
	return p[:n]
}

func (p *points) request(t *timeline) { p.requests = bump(p.requests, t.slot) }
func (p *points) refuse(t *timeline)  { p.refused = bump(p.refused, t.slot) }

func bump(p []int64, slot int) []int64 {
	for len(p) <= slot {
		p = append(p, 0)
	}
	p[slot]++
	return p
}

// series returns the points up to the present second.
func (p *points) series(t *timeline) Series {
	s := Series{Start: t.start, Step: t.step, Requests: []int64{}, Refused: []int64{}}
	if t.step == 0 {
		return s
	}
	s.Requests, s.Refused = make([]int64, t.slot+1), make([]int64, t.slot+1)
	copy(s.Requests, p.requests)
	copy(s.Refused, p.refused)
	return s
}
