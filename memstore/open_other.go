//go:build !linux

package memstore

func (s *Store) openFile(Options, int64) error { return ErrNoMapping }

// monotonic is not known here, where no counts are handed over.
func monotonic() int64 { return 0 }

// newMemory returns the backing of a store without a file: Go's heap.
func newMemory(segmentBytes int64, _ int) (backing, error) { return newHeap(segmentBytes), nil }
