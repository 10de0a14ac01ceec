// Command weir is a rate-limiting edge for HTTP APIs.
//
// Without flags, weir serve is the Widget and Bulk-Sync API itself, limited exactly as its contract
// says; with --upstream it protects another backend by the same limits, or by a policy file of the
// operator's own. The other subcommands check and explain policies and manage API tokens. The
// behaviour of each is written down in testdata, as scripts.
package main

import (
	"os"
	_ "time/tzdata" // the zones of calendar windows, for a machine that has none
)

func main() {
	os.Exit(run(os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr))
}
