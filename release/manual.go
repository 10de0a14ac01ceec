package main

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// manuals makes a manual page of the help of weir and of each of its commands. The function help
// returns what --help prints for a command.
func manuals(help func(command ...string) ([]byte, error), at time.Time) ([]file, error) {
	var pages []file
	var add func(command []string, short string) error
	add = func(command []string, short string) error {
		text, err := help(command...)
		if err != nil {
			return err
		}
		h := readHelp(string(text))
		name := strings.Join(append([]string{"weir"}, command...), "-")
		pages = append(pages, file{Name: name + ".1", Content: page(name, short, h, at), Mode: 0o644})
		for _, c := range h.commands {
			if c.name == "help" {
				continue
			}
			if err := add(append(command[:len(command):len(command)], c.name), c.short); err != nil {
				return err
			}
		}
		return nil
	}
	err := add(nil, "a rate-limiting edge for HTTP APIs")
	return pages, err
}

// A helpText is what --help prints, in parts.
type helpText struct {
	about    string
	sections []section
	commands []command
}

type section struct{ title, text string }

type command struct{ name, short string }

var (
	heading = regexp.MustCompile(`^([A-Z][A-Za-z ]*):$`)
	entry   = regexp.MustCompile(`^  (\S+)\s+(\S.*)$`)
	option  = regexp.MustCompile(`^ +(-.*?) {2,}(\S.*)$`)
)

func readHelp(text string) helpText {
	var h helpText
	title, lines := "", []string(nil)
	end := func() {
		body := strings.Trim(strings.Join(lines, "\n"), "\n")
		if title == "" {
			h.about = body
		} else {
			h.sections = append(h.sections, section{title, body})
		}
		if title == "Available Commands" {
			for _, line := range lines {
				if m := entry.FindStringSubmatch(line); m != nil {
					h.commands = append(h.commands, command{m[1], m[2]})
				}
			}
		}
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \n")
		if m := heading.FindStringSubmatch(line); m != nil {
			end()
			title, lines = m[1], nil
			continue
		}
		if strings.HasPrefix(line, `Use "weir`) {
			continue
		}
		lines = append(lines, line)
	}
	end()
	return h
}

// titles are the words that manual pages use for the parts of a help.
var titles = map[string]string{"Usage": "SYNOPSIS", "Flags": "OPTIONS", "Available Commands": "COMMANDS"}

func page(name, short string, h helpText, at time.Time) []byte {
	var b bytes.Buffer
	// Words are not divided: a flag that continues on the next line cannot be searched for.
	fmt.Fprintf(&b, ".TH %s 1 %s\n.nh\n.ad l\n.SH NAME\n%s \\- %s\n", strings.ToUpper(name), at.UTC().Format(time.DateOnly), roff(name), roff(short))
	for _, s := range h.sections {
		if s.title == "Usage" {
			verbatim(&b, "SYNOPSIS", s.text)
		}
	}
	paragraphs(&b, "DESCRIPTION", h.about)
	for _, s := range h.sections {
		if s.title == "Usage" {
			continue
		}
		title := titles[s.title]
		if title == "" {
			title = strings.ToUpper(s.title)
		}
		switch s.title {
		case "Flags":
			terms(&b, title, option, s.text)
		case "Available Commands":
			terms(&b, title, entry, s.text)
		case "Examples":
			verbatim(&b, title, s.text)
		default:
			paragraphs(&b, title, s.text)
		}
	}
	return b.Bytes()
}

// paragraphs writes a text that is filled. An indented line stays one of its own, and may be broken
// where it is too long.
func paragraphs(b *bytes.Buffer, title, text string) {
	fmt.Fprintf(b, ".SH %s\n", title)
	for line := range strings.SplitSeq(text, "\n") {
		switch trimmed := strings.TrimLeft(line, " "); {
		case trimmed == "":
			b.WriteString(".PP\n")
		case trimmed != line:
			line = breakable.Replace(roff(columns.ReplaceAllString(trimmed, "   ")))
			fmt.Fprintf(b, ".br\n.in +2n\n%s\n.br\n.in -2n\n", line)
		default:
			b.WriteString(roff(line) + "\n")
		}
	}
}

var (
	columns   = regexp.MustCompile(` {3,}`)
	breakable = strings.NewReplacer("]", `]\:`, "?", `\:?`) // the forms of URLs are long words
)

// terms writes lines of a name and a text about it, which is filled.
func terms(b *bytes.Buffer, title string, form *regexp.Regexp, text string) {
	fmt.Fprintf(b, ".SH %s\n", title)
	for line := range strings.SplitSeq(text, "\n") {
		if m := form.FindStringSubmatch(line); m != nil {
			fmt.Fprintf(b, ".TP\n\\fB%s\\fR\n%s\n", roff(m[1]), roff(m[2]))
		}
	}
}

// verbatim writes lines that keep their breaks, as they were written for a terminal.
func verbatim(b *bytes.Buffer, title, text string) {
	fmt.Fprintf(b, ".SH %s\n.nf\n", title)
	for line := range strings.Lines(text) {
		b.WriteString(roff(strings.TrimRight(line, "\n")) + "\n")
	}
	b.WriteString(".fi\n")
}

// roff protects what begins a request, and what would become typography.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, `-`, `\-`, `'`, `\(aq`, "`", `\(ga`, `^`, `\(ha`, `~`, `\(ti`, "…", "...").Replace(s)
	if strings.HasPrefix(s, ".") {
		s = `\&` + s
	}
	return s
}
