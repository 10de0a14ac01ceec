package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// A parser parses the lines of one file. It may change the bytes of a line, but only of a valid
// one.
type parser interface {
	// parse fills r from b. The error is the reason why b is not a request.
	parse(b []byte, r *record) error
	// has reports whether lines of the format can have a value of that name.
	has(field string) bool
}

// A format is a log format.
type format struct {
	name string
	// begun: the logged time is when the request began, although the line is written when it ends.
	begun bool
	// omits: a line omits a User-Agent that the client did not send.
	omits bool
	open  func(fields []string) parser
}

// formats are the named formats, the more specific first.
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

// Formats returns the names that are valid as Options.Format.
func Formats() []string {
	names := []string{"auto"}
	for i := range formats {
		names = append(names, formats[i].name)
	}
	return names
}

// choices returns the formats that Options.Format allows.
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
	firstSample = 10  // lines from which the format is detected
	lastSample  = 100 // the same if none of the first lines has a format
)

// A sample is the beginning of a file.
type sample struct {
	lines []sampled // not blank
	err   error     // why the sample is shorter than wanted; nil if it is not
}

type sampled struct {
	text   []byte
	number int64
	whole  bool
	err    error // errLong for a text that is only a line's beginning
}

const maxSample = 4 << 20 // bytes

// sampling reads the first lines of l, max at most.
func sampling(l *lines, max int) sample {
	var s sample
	for bytesRead := 0; len(s.lines) < max && bytesRead < maxSample; {
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
