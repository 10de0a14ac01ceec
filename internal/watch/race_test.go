//go:build race

package watch_test

// floodOfCallers is smaller than without the race detector, which is fifty times slower.
const floodOfCallers = 1_000_000
