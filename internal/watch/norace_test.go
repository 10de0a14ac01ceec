//go:build !race

package watch_test

// floodOfCallers is how many callers come once each.
const floodOfCallers = 10_000_000
