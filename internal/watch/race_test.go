//go:build race

package watch_test

// floodOfCallers is less than it would be without the race detector, which makes each fifty times as slow.
const floodOfCallers = 1_000_000
