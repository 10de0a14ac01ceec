//go:build !linux

package memstore

func (s *Store) openFile(Options, int64) error { return ErrNoMapping }

// newMemory returns the backing of a store without a file: Go's heap.
func newMemory(segmentBytes int64, _ int) (backing, error) { return newHeap(segmentBytes), nil }
