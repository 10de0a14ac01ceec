//go:build !linux

package memstore

func (s *Store) openFile(Options, int64) error { return ErrNoMapping }

// newMemory returns the ground of a store without a file.
func newMemory(segmentBytes int64, _ int) (ground, error) { return newHeap(segmentBytes), nil }
