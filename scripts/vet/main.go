// Vet is `go vet` for another system. It reads the types of imported packages from their sources.
// go vet compiles them first, which takes seven times as long where nothing else needs them.
//
//	GOOS=windows CGO_ENABLED=0 vet ./...
package main

import (
	"golang.org/x/tools/go/analysis/multichecker"
	"golang.org/x/tools/go/analysis/suite/vet"
)

func main() { multichecker.Main(vet.Suite...) }
