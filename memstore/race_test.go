//go:build race

package memstore_test

// Slow parts are repeated less often with the race detector.
const (
	flood   = 2  // times as many keys as there is room for
	kills   = 25 // of processes
	settles = 60_000
)
