package memstore

// An index finds the entry of a key: open addressing with linear probing over places in the shard's slab, which holds the
// keys themselves. Four bytes a slot, at most three quarters full. Its hash is the key, half of which has chosen the shard.
// The zero value is empty and ready.
type index struct {
	slots []int32 // place in the slab plus one; 0 is empty
	used  int
}

const leastSlots = 16

func (x *index) find(k key, slab []entry) (place int32, ok bool) {
	if len(x.slots) == 0 {
		return 0, false
	}
	for i := x.home(k); ; i = x.next(i) {
		s := x.slots[i]
		if s == 0 {
			return 0, false
		}
		if slab[s-1].key == k {
			return s - 1, true
		}
	}
}

func (x *index) home(k key) int    { return int(k[1] & uint64(len(x.slots)-1)) }
func (x *index) next(slot int) int { return (slot + 1) & (len(x.slots) - 1) }

// add files a place whose key is not in the index.
func (x *index) add(place int32, slab []entry) {
	if x.used+1 > len(x.slots)/4*3 {
		x.grow(slab)
	}
	x.file(place, slab)
	x.used++
}

func (x *index) file(place int32, slab []entry) {
	i := x.home(slab[place].key)
	for x.slots[i] != 0 {
		i = x.next(i)
	}
	x.slots[i] = place + 1
}

func (x *index) grow(slab []entry) {
	old := x.slots
	x.slots = make([]int32, max(2*len(old), leastSlots))
	for _, s := range old {
		if s != 0 {
			x.file(s-1, slab)
		}
	}
}

// remove takes a key out. What was probed past its slot moves up, so that no look-up stops short of it.
func (x *index) remove(k key, slab []entry) {
	i := x.home(k)
	for x.slots[i] == 0 || slab[x.slots[i]-1].key != k {
		if x.slots[i] == 0 {
			return
		}
		i = x.next(i)
	}
	x.slots[i] = 0
	x.used--
	for j := x.next(i); x.slots[j] != 0; j = x.next(j) {
		home := x.home(slab[x.slots[j]-1].key)
		if between := (j - home) & (len(x.slots) - 1); between >= (j-i)&(len(x.slots)-1) {
			x.slots[i], x.slots[j] = x.slots[j], 0
			i = j
		}
	}
}
