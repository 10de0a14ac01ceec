//go:build !race

package watch_test

// floodOfCallers is the number of callers that send one request each.
const floodOfCallers = 10_000_000
