package live

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/netfile"
	"github.com/weirlimit/weir/policyfile"
)

// A networksFile is a file of networks that a policy names. If it becomes malformed or is gone, the
// networks that it had stay in force.
type networksFile struct {
	watched
	name     string
	good     weir.Networks // of the last valid text; nil: none was
	err      error         // why the current text is not valid; nil: it is
	reported string        // the last error that was logged; empty after a success
}

// networksFile returns the file of that name, which is read if it is new.
func (s *slot) networksFile(name string) *networksFile {
	f := s.networks[name]
	if f == nil {
		f = s.newNetworksFile(name)
		f.read()
	}
	return f
}

func (s *slot) newNetworksFile(name string) *networksFile {
	path := name
	if !filepath.IsAbs(path) {
		path = filepath.Join(s.directory, path)
	}
	f := &networksFile{watched: watched{path: path, maxSize: netfile.MaxSize}, name: name}
	s.networks[name] = f
	return f
}

// read reads the file, whether it has changed or not.
func (f *networksFile) read() {
	text, err := f.now()
	if err != nil {
		f.err = err
		return
	}
	f.parse(text)
}

// parse reads a text of the file.
func (f *networksFile) parse(text []byte) {
	sum := sha256.Sum256(text)
	if bytes.Equal(sumOf(f.good), sum[:]) {
		f.err = nil
		return
	}
	set, err := netfile.Parse(f.name, text)
	if f.err = err; err == nil {
		f.good = set
	}
}

// sumOf returns the SHA-256 of the file that n was read from, or nil.
func sumOf(n weir.Networks) []byte {
	if s, ok := n.(*netfile.Set); ok {
		return s.Sum()
	}
	return nil
}

// problems returns why the file is not valid.
func (f *networksFile) problems() []policyfile.Problem {
	var bad *netfile.Error
	if !errors.As(f.err, &bad) {
		return []policyfile.Problem{{File: f.path, Message: f.err.Error()}}
	}
	var out []policyfile.Problem
	for _, p := range bad.Problems {
		out = append(out, policyfile.Problem{File: f.path, Line: p.Line, Column: min(p.Line, 1), Value: p.Value, Message: p.Message})
	}
	if bad.More > 0 {
		out = append(out, policyfile.Problem{File: f.path, Message: fmt.Sprintf("%d more problems are not shown", bad.More)})
	}
	return out
}

// readerOf returns a reader of policies from source, which takes networks from the watched files.
func (s *slot) readerOf(source string) policyfile.Reader {
	r := s.reader
	if r.Networks != nil {
		return r
	}
	switch {
	case source == Posted && s.directory == "":
		r.Networks = func(string) (weir.Networks, error) {
			return nil, errors.New("a posted policy can name files of networks only if the server started with a policy file, whose directory has them")
		}
	case source == Posted:
		r.Networks = s.networksForPost
	case s.directory != "":
		r.Networks = func(name string) (weir.Networks, error) {
			f := s.networksFile(name)
			if f.err != nil {
				if errors.As(f.err, new(*netfile.Error)) {
					return nil, &policyfile.Error{Problems: f.problems()}
				}
				return nil, f.err
			}
			return f.good, nil
		}
	}
	return r
}

// networksForPost returns the networks of a file that a posted policy names. An operator who posts
// is not always one who may read this machine's files, so the name has no path, and errors have
// nothing of what the file has in it.
func (s *slot) networksForPost(name string) (weir.Networks, error) {
	if err := netfile.CheckPlain(name); err != nil {
		return nil, err
	}
	f := s.networksFile(name)
	var bad *netfile.Error
	var pathError *fs.PathError
	switch {
	case f.err == nil:
		return f.good, nil
	case errors.As(f.err, &bad):
		var out policyfile.Error
		for _, p := range bad.Problems {
			out.Problems = append(out.Problems, policyfile.Problem{File: name, Line: p.Line, Column: min(p.Line, 1), Message: p.Rule})
		}
		return nil, &out
	case errors.Is(f.err, os.ErrNotExist):
		return nil, errors.New("the policy file's directory has no such file")
	case errors.As(f.err, &pathError):
		return nil, pathError.Err
	}
	return nil, errors.New("it is not a file that can be read")
}

// beginNetworks watches the files that the policy at the start names. A file that has changed since
// it was read is found by the next look.
func (s *slot) beginNetworks(p weir.Policy) {
	s.eachNetworks(p, func(name string, n weir.Networks) {
		f := s.newNetworksFile(name)
		f.good = n
		text, err := f.now()
		if sum := sha256.Sum256(text); err != nil || !bytes.Equal(sum[:], sumOf(n)) {
			f.judge([]byte{0}) // no valid file's text
		}
	})
}

// eachNetworks calls f for each file of networks that p names, once.
func (s *slot) eachNetworks(p weir.Policy, f func(name string, n weir.Networks)) {
	seen := make(map[string]bool)
	p.MapNetworks(func(n weir.Networks) weir.Networks {
		if name, _ := (weir.Who{Networks: n}).NetworksName(); !seen[name] {
			seen[name] = true
			f(name, n)
		}
		return n
	})
}

// prune forgets the files that neither the policy in force nor a pending one names.
func (s *slot) prune() {
	if s.pending != nil || len(s.networks) == 0 {
		return
	}
	named := make(map[string]bool)
	s.eachNetworks(s.state.Load().Policy, func(name string, _ weir.Networks) { named[name] = true })
	for name, f := range s.networks {
		if !named[name] {
			f.close()
			delete(s.networks, name)
		}
	}
}

// lacksNetworks reports whether a file of networks is not valid.
func (s *slot) lacksNetworks() bool {
	for _, f := range s.networks {
		if f.err != nil {
			return true
		}
	}
	return false
}

// readNetworks reads all files again.
func (s *slot) readNetworks() {
	for _, f := range s.networks {
		f.read()
	}
}

// lookAtNetworks reads the files that have changed and are complete, and reports whether there are
// any.
func (s *slot) lookAtNetworks(now time.Time) (changed bool) {
	for _, name := range s.names() {
		f := s.networks[name]
		text, replaced, err := f.look(now)
		switch {
		case err != nil:
			f.err = err
		case replaced:
			f.parse(text)
			changed = true
		case f.failures == 0 && f.change == nil && f.settled && f.err != nil && !errors.As(f.err, new(*netfile.Error)):
			f.parse(f.judged) // it can be read again
			changed = true
		}
		s.reportNetworks(Watch, f)
	}
	return changed
}

// reportNetworks logs once that a file is not valid, and that it is valid again.
func (s *slot) reportNetworks(by string, f *networksFile) {
	switch {
	case f.err == nil && f.reported != "":
		f.reported = ""
		s.log.Info("a file of networks of the "+s.what+" is valid again", "path", f.path)
	case f.err != nil && f.err.Error() != f.reported:
		f.reported = f.err.Error()
		if f.good == nil {
			return // the policy that names it is rejected, and that was logged
		}
		problems := f.problems()
		s.log.Error("a file of networks of the "+s.what+" is not valid, and the networks that it had stay in force", "path", f.path, "problems", len(problems), "by", by)
		for i, p := range problems {
			if i == maxLogged {
				break
			}
			s.log.Error("a problem of a file of networks", withHint([]any{"problem", p.String()}, p)...)
		}
		s.attempted(Attempt{At: s.now(), By: by, Problems: problems})
	}
}

func (s *slot) names() []string {
	names := make([]string, 0, len(s.networks))
	for name := range s.networks {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// renew offers what changed files of networks make possible: the file's text that was rejected
// before, or else the policy in force with its new networks.
func (s *slot) renew() {
	if s.pending != nil && s.offer(Author{By: Watch}, File, s.file.path, s.pending) == nil {
		return
	}
	if err := s.refresh(Watch); err == nil && len(s.invalid()) == 0 {
		s.attempted(s.judged)
	}
}

// unchanged puts in force what the files of networks have now, under the same policy.
func (s *slot) unchanged(by, path string) error {
	before := s.state.Load().Version
	s.judged = Attempt{At: s.now(), By: by, OK: true}
	err := s.refresh(by)
	if invalid := s.invalid(); err == nil && len(invalid) > 0 {
		s.judged = Attempt{At: s.now(), By: by, Problems: invalid}
		for _, name := range s.names() {
			s.networks[name].reported = ""
			s.reportNetworks(by, s.networks[name])
		}
		s.attempted(s.judged)
		return &policyfile.Error{Problems: invalid}
	}
	if err == nil && s.state.Load().Version == before {
		s.log.Info("the "+s.what+" is unchanged", "path", path, "version", before, "by", by)
		s.attempted(s.judged)
	}
	return err
}

// invalid returns the problems of the files of networks that the policy in force names.
func (s *slot) invalid() (all []policyfile.Problem) {
	s.eachNetworks(s.state.Load().Policy, func(name string, _ weir.Networks) {
		if f := s.networks[name]; f != nil && f.err != nil {
			all = append(all, f.problems()...)
		}
	})
	return all
}

// refresh puts the policy in force again with the networks that its files have now, if they have
// others.
func (s *slot) refresh(by string) error {
	old := s.state.Load()
	var renewed []string
	p := old.Policy.MapNetworks(func(n weir.Networks) weir.Networks {
		name, _ := weir.Who{Networks: n}.NetworksName()
		f := s.networks[name]
		if f == nil || f.good == nil || f.good == n {
			return n
		}
		renewed = append(renewed, n.String())
		return f.good
	})
	if len(renewed) == 0 {
		return nil
	}
	d := &Document{Source: old.Source, Path: old.Path, Text: old.Text, File: &policyfile.File{Policy: p, Lines: old.Lines, Warnings: old.Warnings}}
	if err := s.accept(Author{By: by}, d); err != nil {
		var bad *policyfile.Error
		if !errors.As(err, &bad) {
			bad = &policyfile.Error{Problems: []policyfile.Problem{{File: d.Path, Message: err.Error()}}}
		}
		s.refuse(by, d.Path, bad.Problems)
		return err
	}
	state := s.newState(d, s.now(), by)
	s.state.Store(state)
	slices.Sort(renewed)
	s.log.Info("the networks of the "+s.what+" were replaced; counts continue", "files", strings.Join(slices.Compact(renewed), " "),
		"version", state.Version, "was", old.Version, "by", by)
	s.notify()
	return nil
}
