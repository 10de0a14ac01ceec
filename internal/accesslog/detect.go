package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// A parser reads the lines of one file. It may change a line's bytes, but only when nothing is wrong with the line.
type parser interface {
	// parse fills r from b; the error is why b is no request.
	parse(b []byte, r *record) error
	// has reports whether lines of the format can have a value of that name.
	has(field string) bool
}

// A format is one that logs are written in.
type format struct {
	name string
	// begun: the time is when the request began, though the line is written when it has ended.
	begun bool
	// omits: a line leaves the User-Agent out if the client sent none.
	omits bool
	open  func(fields []string) parser
}

// formats are those that have names, what is told by more before what is told by less.
var formats = []format{
	{"traefik", true, false, func(fields []string) parser { return newCLF(traefik, fields) }},
	{"vhost_combined", false, false, func(fields []string) parser { return newCLF(vhost, fields) }},
	{"combined", false, false, func(fields []string) parser { return newCLF(combined, fields) }},
	{"common", false, false, func(fields []string) parser { return newCLF(common, fields) }},
	{"istio", true, false, envoy(istioText)},
	{"envoy", true, false, envoy(envoyText)},
	{"weir", true, false, func(fields []string) parser { return newPairs(fields) }},
	{"caddy", true, true, objects(&caddyShape)},
	{"traefik-json", true, true, objects(&traefikShape)},
	{"envoy-json", true, true, objects(&envoyShape)},
	{"weir-json", true, false, objects(&weirShape)},
	{"nginx-json", true, true, objects(&nginxShape)},
}

func objects(s *shape) func(fields []string) parser {
	return func(fields []string) parser { return newObject(s, fields) }
}

// Formats returns the names that Options.Format takes.
func Formats() []string {
	names := []string{"auto"}
	for i := range formats {
		names = append(names, formats[i].name)
	}
	return names
}

// choices returns the formats that a file may have according to Options.Format.
func choices(name string) ([]format, error) {
	if name == "" || name == "auto" {
		return formats, nil
	}
	if strings.Contains(name, "$") {
		f, err := templateFormat(name)
		return []format{f}, err
	}
	for i := range formats {
		if formats[i].name == name {
			return formats[i : i+1], nil
		}
	}
	return nil, fmt.Errorf("log format %q is unknown: it is one of %s, or a log_format of nginx's with its $variables", name, strings.Join(Formats(), ", "))
}

const (
	firstSample = 10  // lines that tell the format
	lastSample  = 100 // lines, where the first ones are of none
)

// A sample is the beginning of a file.
type sample struct {
	lines []sampled // not blank
	err   error     // why it is no longer; nil where it need not be
}

type sampled struct {
	text   []byte
	number int64
	whole  bool
	err    error // errLong: the text is the line's beginning
}

const longestSample = 4 << 20 // bytes

// sampling reads the beginning of l.
func sampling(l *lines, most int) sample {
	var s sample
	for bytesRead := 0; len(s.lines) < most && bytesRead < longestSample; {
		line, err := l.next()
		if err != nil && !errors.Is(err, errLong) {
			s.err = err
			break
		}
		if len(trimmed(line)) > 0 {
			s.lines = append(s.lines, sampled{bytes.Clone(line), l.number, l.whole, err})
			bytesRead += len(line)
		}
	}
	return s
}
