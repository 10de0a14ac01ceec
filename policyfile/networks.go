package policyfile

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/netfile"
)

// MaxNetworksSize is the max size of a file of networks, in bytes.
const MaxNetworksSize = netfile.MaxSize

// NetworksIn returns a function for Reader.Networks that reads files of networks. A name is a path,
// relative to dir. A file has one network or address a line; what follows a "#" is a comment.
func NetworksIn(dir string) func(name string) (weir.Networks, error) {
	return func(name string) (weir.Networks, error) {
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		switch info, err := os.Stat(path); {
		case err != nil: // Open reports it
		case info.IsDir():
			return nil, fmt.Errorf("%s is a directory: one file is needed", path)
		case !info.Mode().IsRegular(): // opening a pipe could block for ever
			return nil, fmt.Errorf("%s is no regular file: one is needed, because it is read again when it changes", path)
		}
		f, err := os.Open(path)
		if err != nil {
			return nil, err // names the path
		}
		defer f.Close()
		text, err := io.ReadAll(io.LimitReader(f, MaxNetworksSize+1))
		if err != nil {
			return nil, err
		}
		return ParseNetworks(name, path, text)
	}
}

// ParseNetworks reads the text of a file of networks. name is what a policy calls it, and path is
// what its problems call it. The error is an [*Error].
func ParseNetworks(name, path string, text []byte) (weir.Networks, error) {
	s, err := netfile.Parse(name, text)
	var bad *netfile.Error
	if !errors.As(err, &bad) {
		return s, err
	}
	out := new(Error)
	for _, p := range bad.Problems {
		column := min(p.Line, 1) // 0 for the file as a whole
		out.Problems = append(out.Problems, Problem{File: path, Line: p.Line, Column: column, Value: p.Value, Message: p.Message})
	}
	if bad.More > 0 {
		out.Problems = append(out.Problems, Problem{File: path, Message: fmt.Sprintf("%d more problems are not shown", bad.More)})
	}
	return nil, out
}

// readNetworks returns p with the files of networks that it names. It reads each once, and reports
// one that cannot be read where it is named first.
func (d *reading) readNetworks(p weir.Policy) weir.Policy {
	read := make(map[string]weir.Networks)
	one := func(limiter int, field string, item int, who weir.Who) {
		name, ok := who.NetworksName()
		if !ok || read[name] != nil {
			return
		}
		read[name] = missing(name)
		path := fmt.Sprintf("limiters[%d].%s[%d]", d.policyAt.limiters[limiter], field, d.policyAt.of(limiter, field, item))
		switch networks, err := d.networks(name, len(read)); {
		case err == nil:
			read[name] = networks
		default:
			d.networksProblem(path, name, err)
		}
	}
	for i := range p.Limiters {
		l := &p.Limiters[i]
		for j, who := range l.Exempt {
			one(i, "exempt", j, who)
		}
		for j, who := range l.Deny {
			one(i, "deny", j, who)
		}
		for j, o := range l.Overrides {
			one(i, "overrides", j, o.For)
		}
	}
	if len(read) == 0 {
		return p
	}
	return p.MapNetworks(func(n weir.Networks) weir.Networks {
		name, _ := weir.Who{Networks: n}.NetworksName()
		return read[name]
	})
}

// networks reads the n-th file of networks.
func (d *reading) networks(name string, n int) (weir.Networks, error) {
	switch {
	case n > MaxNetworks:
		return nil, fmt.Errorf("the policy names more than %d files of networks: merge some", MaxNetworks)
	case d.reader.Networks == nil:
		return nil, errors.New("there is no directory to look for the file in: only the policy of a file can name files of networks")
	}
	return d.reader.Networks(name)
}

func (d *reading) networksProblem(path, name string, err error) {
	var bad *Error
	switch {
	case errors.As(err, &bad):
		d.fail(path, "@"+name, "correct the file; 'weir policy check FILE' reads it too", "@%s: the file is not valid, so nothing of it is used", name)
		if room := MaxProblems - len(d.elsewhere); room > 0 {
			d.elsewhere = append(d.elsewhere, bad.Problems[:min(room, len(bad.Problems))]...)
		}
	case errors.Is(err, os.ErrNotExist):
		d.fail(path, "@"+name, "create it, with one network or address a line; the path is relative to the directory of the policy file, and for a policy on standard input to the working directory", "@%s: %v", name, err)
	default:
		d.fail(path, "@"+name, "", "@%s: %v", name, err)
	}
}

// missing are networks whose file could not be read; the policy that names it is rejected.
type missing string

func (missing) Contains(netip.Addr) bool { return false }

func (m missing) String() string { return "@" + string(m) }

// Version returns 8 hex digits that identify a policy in a log. They are the same on every node
// with the same limiters and the same files of networks, whatever the layout and comments of the
// policy file.
func Version(p weir.Policy) string {
	h := sha256.New()
	h.Write(Marshal(p))
	seen := make(map[weir.Networks]bool)
	p.MapNetworks(func(n weir.Networks) weir.Networks {
		if s, ok := n.(interface{ Sum() []byte }); ok && !seen[n] {
			seen[n] = true
			h.Write(s.Sum())
		}
		return n
	})
	return hex.EncodeToString(h.Sum(nil)[:4])
}
