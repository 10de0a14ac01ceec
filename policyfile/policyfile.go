// Package policyfile reads and writes policies as files.
//
// A policy file is written in a small, strict subset of YAML: mappings, lists and one-line texts.
// [Parse] reads one and reports every problem at once, with its line, its column and what is
// allowed. The contract's policy is built in as such a file ([Contract]). Parse runs these steps in
// order. It stops early only if the next step cannot work with what the last one found:
//
//	bytes → tokens       scan.go      checks and bounds size, encoding and depth before parsing
//	tokens → document    document.go  checks which fields there are, and their types
//	document → policy    meaning.go   parses routes and windows, and checks the rules of package weir
//	policy → warnings    warnings.go  finds what is valid but surprising
//
// [LoadSettings] reads another kind of file in the same YAML and with the same problems: a
// configuration, which has named values. Its caller knows what they mean.
package policyfile

import (
	_ "embed"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/weirlimit/weir"
)

// The bounds of a policy file. The windows of one limiter are bounded by weir.MaxWindows.
const (
	MaxSize     = 1 << 20 // bytes
	MaxLimiters = 1000
	MaxRoutes   = 10_000       // in all limiters together
	MaxText     = weir.MaxText // bytes in one text

	MaxExceptions = 10_000 // exempt callers, denied callers and overrides, in all limiters together
	MaxNetworks   = 32     // files of networks, in all limiters together
)

//go:embed contract.yaml
var contract []byte

// Contract returns the built-in policy: the contract's limiters, and one more
// that covers the rest of the widget surface.
func Contract() weir.Policy {
	f, err := Parse("contract.yaml", contract)
	if err != nil {
		panic(err) // it is compiled in, and a test checks that it is valid
	}
	return f.Policy
}

// ContractSource returns a copy of the built-in policy's source text, with its comments. The caller
// may change it.
func ContractSource() []byte { return append([]byte(nil), contract...) }

// A File is a valid policy that was read from a file.
type File struct {
	Policy   weir.Policy
	Lines    []int     // the line on which each limiter of Policy begins, from 1
	Warnings []Problem // what is valid but surprising, in the file's order
}

// A Reader reads policy files. The zero value accepts the built-in key sources and any
// message name. A Reader is safe for concurrent use.
type Reader struct {
	// Sources are the key sources that windows may count by; nil means weir.Sources().
	Sources []weir.Source
	// Messages are the names that a limiter's message may have; nil accepts any well-formed name.
	Messages []string
	// Networks reads the file of networks that a policy names with "@" and that name. If nil, Load
	// reads it as [NetworksIn] does, and a policy that Parse reads must name none. An [*Error]
	// has the problems of the file's lines.
	Networks func(name string) (weir.Networks, error)
}

// Parse is [Reader.Parse] of the zero Reader.
func Parse(name string, source []byte) (*File, error) { return Reader{}.Parse(name, source) }

// Load is [Reader.Load] of the zero Reader.
func Load(path string) (*File, error) { return Reader{}.Load(path) }

// Load reads the policy file at path. If the file is not a valid policy, the error is an [*Error].
// If the file cannot be read, the error wraps the one of package os. Load reads at most MaxSize+1
// bytes, also from a device that never ends.
func (r Reader) Load(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read policy: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return nil, fmt.Errorf("read policy: %s is a directory: one file is needed", path)
	}
	source, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("read policy: %w", err)
	}
	if r.Networks == nil {
		r.Networks = NetworksIn(filepath.Dir(path))
	}
	return r.Parse(path, source)
}

// Parse reads a policy from source. Problems give name as the file. The error is always an
// [*Error]. Time and memory are proportional to the size of source, even if it is hostile.
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

func (r Reader) sources() []weir.Source {
	if r.Sources == nil {
		return weir.Sources()
	}
	return r.Sources
}

// chosen reports whether callers choose the value of a source. A source that is not known is taken
// for one that they choose.
func (r Reader) chosen(source string) bool {
	s, _ := weir.FindSource(r.sources(), source)
	return s.Kind == weir.Chosen
}

// knows reports whether windows may count by source.
func (r Reader) knows(source string) bool {
	_, ok := weir.FindSource(r.sources(), source)
	return ok
}
