//go:build !race

package memstore_test

// Slow parts are repeated less often with the race detector.
const (
	flood   = 10 // times as many keys as there is room for
	kills   = 60 // of processes
	settles = 600_000
)
