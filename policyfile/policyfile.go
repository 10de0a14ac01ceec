// Package policyfile reads and writes policies as files.
//
// A policy file is a small, strict part of YAML: mappings, lists and one-line texts. [Parse] reads one and tells everything
// that is wrong with it at once, each problem at its line and column with what is allowed. The contract is built in
// ([Contract]), and is itself such a file. A reading goes down these steps, and stops only where the next one could not
// make sense of what is left:
//
//	bytes → tokens       scan.go      size, encoding, depth: bounded before any parser sees them
//	tokens → document    document.go  which fields there are, and of which type
//	document → policy    meaning.go   routes, windows and the rules of package weir, at the lines they are about
//	policy → warnings    warnings.go  what is valid but surprising
package policyfile

import (
	_ "embed"
	"fmt"
	"io"
	"os"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
)

// What a policy file may hold at most. A limiter's windows are bounded by weir.MaxWindows.
const (
	MaxSize     = 1 << 20 // bytes
	MaxLimiters = 1000
	MaxRoutes   = 10_000 // of all limiters
	MaxText     = 1024   // bytes of one text

	MaxExceptions = 10_000 // exempt callers and overrides, of all limiters
)

//go:embed contract.yaml
var contract []byte

// Contract returns the built-in policy: the contract's limiters, and one of our own for all else on the widget surface.
func Contract() weir.Policy {
	f, err := Parse("contract.yaml", contract)
	if err != nil {
		panic(err) // compiled in, and held valid by a test
	}
	return f.Policy
}

// ContractSource returns the built-in policy as it is written, comments and all. The caller may change the copy.
func ContractSource() []byte { return append([]byte(nil), contract...) }

// A File is a policy that was read, with nothing wrong in it.
type File struct {
	Policy   weir.Policy
	Lines    []int     // for each limiter of Policy, the line that it begins on, from 1
	Warnings []Problem // what is valid but surprising, in the file's order
}

// A Reader reads policy files. The zero value knows what is built in; a Reader may be shared.
type Reader struct {
	// Sources are the key sources that windows may count by; nil means those of package identity.
	Sources []string
	// Messages are the names that a limiter's message may have; nil accepts any well-formed name.
	Messages []string
}

// Parse is [Reader.Parse] with what is built in.
func Parse(name string, source []byte) (*File, error) { return Reader{}.Parse(name, source) }

// Load is [Reader.Load] with what is built in.
func Load(path string) (*File, error) { return Reader{}.Load(path) }

// Load reads the policy file at path. The error is an [*Error] where the file is no valid policy, and one of package os
// where it cannot be read. No more than MaxSize is read of it, whatever it is.
func (r Reader) Load(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read policy: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return nil, fmt.Errorf("read policy: %s is a directory, where one file is needed", path)
	}
	source, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("read policy: %w", err)
	}
	return r.Parse(path, source)
}

// Parse reads a policy from source; name stands for the file in problems. An error is always an [*Error]. It takes time
// and memory in proportion to the source, whatever the source says.
func (r Reader) Parse(name string, source []byte) (*File, error) {
	d := newReading(r, name)
	var doc document
	if tokens, ok := d.scan(source); ok && d.read(tokens, &doc) {
		p := d.policy(&doc)
		if len(d.problems) == 0 {
			return &File{Policy: p, Lines: d.lines(p), Warnings: d.warnings(p)}, nil
		}
	}
	return nil, &Error{d.sorted()}
}

func (r Reader) sources() []string {
	if r.Sources == nil {
		return identity.Sources()
	}
	return r.Sources
}
