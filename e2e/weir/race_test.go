//go:build race

package weir

// raceEnabled says whether the tests run with the race detector; the binary under test is built
// likewise.
const raceEnabled = true
