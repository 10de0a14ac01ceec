//go:build !race

package weir

// raceEnabled reports whether the tests run with the race detector. The binary
// under test is built the same way.
const raceEnabled = false
