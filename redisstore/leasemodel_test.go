//go:build !race

// One goroutine visits a million states, which the race detector would only slow down.

package redisstore_test

import "hash/maphash"

// This file is a model of leases: units that a node has charged in the store before it gives them
// out. The nodes keep them in pockets, one for each window. docs/adr/0040-leases.md describes the
// protocol. The search visits every state that the model can reach, in any order of steps.

// A leaseFault is one rule of the protocol that the model breaks.
type leaseFault string

const (
	sound             leaseFault = "no fault"
	unguardedDrift    leaseFault = "the deadline leaves no room for a slow clock"
	deadlineAtAnswer  leaseFault = "the deadline counts from the answer, not from the question"
	sleepingClock     leaseFault = "the deadline runs on a clock that stops while the machine sleeps"
	uncutGrant        leaseFault = "the store grants more units than the window has left"
	unchargedGrant    leaseFault = "the store charges the cost, but not the granted units"
	answerTwice       leaseFault = "a repeated answer fills the pocket again"
	mergedWindows     leaseFault = "a refill keeps the units of an earlier window"
	returnTwice       leaseFault = "a return is sent again"
	returnKept        leaseFault = "a node spends units that it has sent back"
	returnAnyReset    leaseFault = "a return does not name its window's reset"
	returnAnyGen      leaseFault = "a return survives an operator's reset"
	returnAnyEpoch    leaseFault = "a return survives a failover"
	pocketKeptByReset leaseFault = "a node keeps its pocket after it learns of an operator's reset"
)

// A leaseWorld bounds the model.
type leaseWorld struct {
	nodes, limit   uint8
	length, end    uint8 // of a window, and of time, in ticks
	want           uint8 // units that an ask wants beside its cost of 1
	resets, failed uint8 // how often an operator resets the window, and a replica is promoted
	repeats        bool  // whether the network may deliver a question to the store twice
	fault          leaseFault
}

const (
	modelNodes   = 3
	modelWindows = 8
)

// A modelWindow is a window as one side knows it. Instance numbers exist in the model only.
type modelWindow struct{ instance, reset, gen, epoch uint8 }

// A modelPocket has the units of one node. It is dead if left is 0.
type modelPocket struct {
	modelWindow
	units, left, stalled uint8
}

const (
	noAsk = iota
	asked
	answered
)

// A modelAsk is a question under way, or its answer.
type modelAsk struct {
	modelWindow
	step, repeated, want, granted, ttl, elapsed, stalled uint8
}

// A modelReturn is under way to the store.
type modelReturn struct {
	modelWindow
	units, again uint8
}

type modelNode struct {
	pocket modelPocket
	ask    modelAsk
	back   modelReturn
	gen    uint8 // the operators' resets that the node knows of
}

// A modelState is everything at one moment. A window's count is in counts.
type modelState struct {
	now, opened             uint8
	store, replica          modelWindow
	replicaCount            uint8
	counts, admitted, lacks [modelWindows]uint8 // lacks: units that a failover has forgotten
	nodes                   [modelNodes]modelNode
	broken                  uint8 // what a step did that it never may
}

const (
	keepsRules = iota
	spentAfterReset
	spentVoided
)

// violation returns what is wrong with s, or "".
func (w *leaseWorld) violation(s *modelState) string {
	switch s.broken {
	case spentAfterReset:
		return "a unit was spent after its window's reset"
	case spentVoided:
		return "a unit was spent that the node knew to be void"
	}
	for i, n := range s.admitted {
		if n > w.limit+s.lacks[i] {
			return "more was admitted than the limit"
		}
	}
	return ""
}

// next calls visit with each state that can follow s.
func (w *leaseWorld) next(s *modelState, visit func(modelState)) {
	if s.now < w.end {
		w.tick(s, 0, visit)
	}
	if s.store.gen < w.resets && s.now < s.store.reset {
		t := *s
		t.store = modelWindow{gen: s.store.gen + 1, epoch: s.store.epoch}
		visit(t)
	}
	if s.store.epoch < w.failed {
		w.fail(s, visit)
	}
	for i := range w.nodes {
		w.asks(s, i, visit)
		w.spends(s, i, visit)
		w.returns(s, i, visit)
		if n := &s.nodes[i]; n.gen < s.store.gen {
			t := *s
			t.nodes[i].gen = s.store.gen
			if w.fault != pocketKeptByReset {
				t.nodes[i].pocket = modelPocket{}
			}
			visit(t)
		}
		if s.nodes[i] != (modelNode{gen: s.nodes[i].gen}) {
			t := *s // a crash; a node that starts asks for the operators' resets first
			t.nodes[i] = modelNode{gen: s.store.gen}
			visit(t)
		}
	}
}

// tick lets time pass. A node's clock may miss one tick in the life of a pocket, from its question.
func (w *leaseWorld) tick(s *modelState, i uint8, visit func(modelState)) {
	if i == w.nodes {
		t := *s
		t.now++
		visit(t)
		return
	}
	t, n := *s, s.nodes[i]
	active := n.ask.step != noAsk || n.pocket.left > 0
	if n.ask.step != noAsk {
		n.ask.elapsed++
	}
	if n.pocket.left > 0 {
		n.pocket.left--
		if n.pocket.left == 0 {
			n.pocket = modelPocket{}
		}
	}
	t.nodes[i] = n
	w.tick(&t, i+1, visit)
	n = s.nodes[i]
	if !active || w.fault != sleepingClock && (n.ask.stalled > 0 || n.pocket.stalled > 0) {
		return
	}
	if n.ask.step != noAsk {
		n.ask.stalled = 1
	}
	if n.pocket.left > 0 {
		n.pocket.stalled = 1
	}
	t.nodes[i] = n
	w.tick(&t, i+1, visit)
}

// fail lets the replica catch up, or promotes it as it is.
func (w *leaseWorld) fail(s *modelState, visit func(modelState)) {
	t := *s
	t.replica, t.replicaCount = s.store, s.counts[s.store.instance]
	visit(t)
	t = *s
	i := s.replica.instance
	if s.counts[i] > s.replicaCount {
		t.lacks[i] += s.counts[i] - s.replicaCount
	}
	t.counts[i], t.store = s.replicaCount, s.replica
	t.store.epoch = s.store.epoch + 1
	t.replica, t.replicaCount = modelWindow{}, 0
	visit(t)
}

// asks is the way of a question: sent, lost, counted, repeated, answered.
func (w *leaseWorld) asks(s *modelState, i uint8, visit func(modelState)) {
	t := *s
	n := &t.nodes[i]
	switch n.ask.step {
	case noAsk:
		for _, want := range []uint8{0, w.want} {
			n.ask = modelAsk{step: asked, want: want}
			visit(t)
		}
	case asked:
		n.ask = modelAsk{}
		visit(t) // lost
		n.ask = s.nodes[i].ask
		n.ask.step = answered
		ok := w.take(&t, &n.ask)
		if !ok {
			n.ask = modelAsk{} // the store's refusal
		}
		visit(t)
		if ok && w.repeats { // only the first answer is read
			again := n.ask
			w.take(&t, &again)
			visit(t)
		}
	case answered:
		n.ask = modelAsk{}
		visit(t) // lost: its units are spent until the reset
		a := s.nodes[i].ask
		if a.repeated == 0 {
			t.admitted[a.instance]++
		}
		if a.gen >= n.gen && a.granted > 0 {
			w.fill(n, &a)
		}
		visit(t)
		if w.fault == answerTwice && a.repeated == 0 {
			n.ask = a
			n.ask.repeated = 1
			visit(t)
		}
	}
}

// take is the script: it charges 1 and as many of the wanted units as the window has left.
func (w *leaseWorld) take(s *modelState, a *modelAsk) bool {
	if s.now >= s.store.reset {
		s.opened++
		s.store.instance, s.store.reset = s.opened, s.now+w.length
	}
	count := &s.counts[s.store.instance]
	if *count+1 > w.limit {
		return false
	}
	*count++
	a.granted = min(a.want, w.limit-*count)
	if w.fault == uncutGrant {
		a.granted = a.want
	}
	if w.fault != unchargedGrant {
		*count += a.granted
	}
	a.modelWindow, a.ttl = s.store, s.store.reset-s.now
	return true
}

// fill puts an answer's units into the pocket, unless its deadline has passed.
func (w *leaseWorld) fill(n *modelNode, a *modelAsk) {
	used := uint8(1) // the guard: what the clock may miss
	if w.fault == unguardedDrift {
		used = 0
	}
	if w.fault != deadlineAtAnswer {
		used += a.elapsed
	}
	if used >= a.ttl {
		return
	}
	p := modelPocket{modelWindow: a.modelWindow, units: a.granted, left: a.ttl - used, stalled: a.stalled}
	if n.pocket.units > 0 && (n.pocket.modelWindow == p.modelWindow || w.fault == mergedWindows) {
		p.units += n.pocket.units
		if n.pocket.modelWindow == p.modelWindow && n.pocket.left > p.left {
			p.left, p.stalled = n.pocket.left, n.pocket.stalled
		}
	}
	n.pocket = p
}

func (w *leaseWorld) spends(s *modelState, i uint8, visit func(modelState)) {
	p := &s.nodes[i].pocket
	if p.units == 0 || p.left == 0 {
		return
	}
	t := *s
	n := &t.nodes[i]
	if s.now >= p.reset {
		t.broken = spentAfterReset
	} else if p.gen < n.gen {
		t.broken = spentVoided
	}
	t.admitted[p.instance]++
	n.pocket.units--
	if n.pocket.units == 0 {
		n.pocket = modelPocket{}
	}
	visit(t)
}

// returns is the way of units that go back: sent once, then lost, or checked by the store.
func (w *leaseWorld) returns(s *modelState, i uint8, visit func(modelState)) {
	t := *s
	n := &t.nodes[i]
	if b := n.back; b.units > 0 {
		n.back = modelReturn{}
		if b.again > 0 {
			n.back = b
			n.back.again = 0
		}
		visit(t) // lost
		same := s.now < s.store.reset &&
			(s.store.reset == b.reset || w.fault == returnAnyReset) &&
			(s.store.gen == b.gen || w.fault == returnAnyGen) &&
			(s.store.epoch == b.epoch || w.fault == returnAnyEpoch)
		if count := &t.counts[s.store.instance]; same && *count >= b.units {
			*count -= b.units
			visit(t)
		}
		return
	}
	if n.pocket.units == 0 {
		return
	}
	n.back = modelReturn{modelWindow: n.pocket.modelWindow, units: n.pocket.units}
	if w.fault == returnTwice {
		n.back.again = 1
	}
	if w.fault != returnKept {
		n.pocket = modelPocket{}
	}
	visit(t)
}

// A leaseSearch is the result of a search, breadth first. Trace is the shortest way to a violation.
type leaseSearch struct {
	states    int
	violation string
	trace     []modelState
}

// search visits the states of w, at most most of them. It knows a state again by a hash of 64 bits,
// so it takes two states for one with a probability of 1 in ten million for a million states.
func (w *leaseWorld) search(most int) leaseSearch {
	type visited struct {
		state  modelState
		parent int
	}
	seed := maphash.MakeSeed()
	seen := make(map[uint64]struct{}, 1<<16)
	var queue []visited
	bad := -1
	at := -1
	visit := func(s modelState) {
		h := maphash.Comparable(seed, s)
		if _, ok := seen[h]; ok || bad >= 0 {
			return
		}
		seen[h] = struct{}{}
		queue = append(queue, visited{s, at})
		if w.violation(&s) != "" {
			bad = len(queue) - 1
		}
	}
	visit(modelState{})
	for at = 0; at < len(queue) && bad < 0 && len(queue) < most; at++ {
		s := queue[at].state
		w.next(&s, visit)
	}
	found := leaseSearch{states: len(queue)}
	if bad >= 0 {
		found.violation = w.violation(&queue[bad].state)
	}
	for ; bad >= 0; bad = queue[bad].parent {
		found.trace = append(found.trace, queue[bad].state)
	}
	return found
}
