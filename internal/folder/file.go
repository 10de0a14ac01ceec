package folder

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"
)

// A kind is a type of file and how it is read.
type kind struct {
	extensions []string
	max        int64 // max bytes of a file; more than its text, because markup is removed
	matter     bool  // whether it may begin with front matter
	read       func(l *lines, source []byte) (title string, err error)
}

var kinds = []kind{
	{[]string{".md", ".markdown"}, 1 << 20, true, markdown},
	{[]string{".html", ".htm"}, 16 << 20, true, page},
	{[]string{".txt"}, 1 << 20, false, plain},
}

// kindOf returns the kind of a file by its extension, or nil if it is none of kinds.
func kindOf(name string) *kind {
	extension := strings.ToLower(path.Ext(name))
	for i := range kinds {
		for _, e := range kinds[i].extensions {
			if e == extension {
				return &kinds[i]
			}
		}
	}
	return nil
}

// Read reads the document in a file that Walk has visited. The error is a *Problem, or ctx's error
// if ctx ends first. In that case parsing may continue in the background.
func (f *Folder) Read(ctx context.Context, name string) (Document, error) {
	d, err := f.read(ctx, name)
	switch {
	case err == nil:
		return d, nil
	case ctx.Err() != nil:
		return Document{}, ctx.Err()
	}
	var p *Problem
	if !errors.As(err, &p) {
		p = &Problem{Reason: fmt.Sprintf("it cannot be read: %v", cause(err)), Hint: "change its permissions so that you may read it, or move it away"}
		if errors.Is(err, fs.ErrNotExist) {
			p.Hint = "it was deleted or moved meanwhile; run again"
		}
	}
	p.Path = name
	return Document{}, p
}

func (f *Folder) read(ctx context.Context, name string) (Document, error) {
	k := kindOf(name)
	if k == nil {
		return Document{}, problem("rename it: .md, .markdown, .html, .htm and .txt are read", "its extension is not one of Markdown, HTML or text")
	}
	source, err := f.source(name, k.max)
	if err != nil {
		return Document{}, err
	}
	return abandoned(ctx, func() (Document, error) { return document(name, source, k, f) })
}

// abandoned runs parse and returns its result, or ctx's error if ctx ends first. A parser cannot be
// cancelled, so its goroutine is left to finish.
func abandoned(ctx context.Context, parse func() (Document, error)) (Document, error) {
	if err := ctx.Err(); err != nil {
		return Document{}, err
	}
	type made struct {
		Document
		error
	}
	done := make(chan made, 1)
	go func() {
		d, err := parse()
		done <- made{d, err}
	}()
	select {
	case m := <-done:
		return m.Document, m.error
	case <-ctx.Done():
		return Document{}, ctx.Err()
	}
}

// document converts the content of a file to a document.
func document(name string, source []byte, k *kind, f *Folder) (Document, error) {
	d := Document{ID: name}
	source, err := text(source)
	if err != nil {
		return d, err
	}
	var own fields
	if k.matter {
		if own, source, err = frontMatter(source); err != nil {
			return d, err
		}
	}
	l := newLines(MaxText)
	title, err := k.read(l, source)
	if err != nil {
		return d, err
	}
	if l.size > MaxText {
		return d, problem("split the file", "its text has %d bytes: at most %d are allowed", l.size, MaxText)
	}
	d.Text = l.String()
	for _, d.Title = range []string{own.title, title, strings.TrimSuffix(path.Base(name), path.Ext(name))} {
		if d.Title = line(d.Title, MaxTitle); d.Title != "" {
			break
		}
	}
	if d.Title == "" {
		d.Title = "untitled"
	}
	d.URL, d.Own, err = address(f.base, name, own.url)
	return d, err
}

// source reads a file of at most max bytes. It rejects files that are not regular, and opens
// without blocking: a pipe would block until there is a writer.
func (f *Folder) source(name string, max int64) ([]byte, error) {
	info, err := f.root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if err := regular(info, max); err != nil {
		return nil, err
	}
	file, err := f.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	opened, err := file.Stat() // it may have been replaced in the meantime
	if err != nil {
		return nil, err
	}
	if err := regular(opened, max); err != nil {
		return nil, err
	}
	if !os.SameFile(info, opened) {
		return nil, problem("run again", "it was replaced while it was read")
	}
	source, err := io.ReadAll(io.LimitReader(file, max+1)) // it may grow while it is read
	if err == nil && int64(len(source)) > max {
		return nil, tooLarge(int64(len(source)), max)
	}
	return source, err
}

func regular(info fs.FileInfo, max int64) error {
	const hint = "replace it by a file, or move it away"
	switch mode := info.Mode(); {
	case mode&fs.ModeNamedPipe != 0:
		return problem(hint, "it is a named pipe, not a file")
	case mode&fs.ModeDevice != 0:
		return problem(hint, "it is a device, not a file")
	case mode&fs.ModeSocket != 0:
		return problem(hint, "it is a socket, not a file")
	case mode&fs.ModeSymlink != 0:
		return problem(hint, "it is a symbolic link: those are not followed")
	case !mode.IsRegular():
		return problem(hint, "it is not a regular file")
	case info.Size() > max:
		return tooLarge(info.Size(), max)
	}
	return nil
}

func tooLarge(size, max int64) error {
	return problem("split it, or move it away", "it has %d bytes: at most %d of such a file are read", size, max)
}

// text returns source without a byte order mark and with \n as line ends, or a problem if it is not
// UTF-8 text.
func text(source []byte) ([]byte, error) {
	if bytes.HasPrefix(source, []byte("\xff\xfe")) || bytes.HasPrefix(source, []byte("\xfe\xff")) {
		return nil, problem("save it as UTF-8", "it is UTF-16, not UTF-8")
	}
	if !utf8.Valid(source) {
		at := 0
		for rest := source; ; {
			r, n := utf8.DecodeRune(rest)
			if r == utf8.RuneError && n < 2 {
				break
			}
			at, rest = at+n, rest[n:]
		}
		return nil, problem("save it as UTF-8", "it is not UTF-8 at byte %d", at)
	}
	if at := bytes.IndexByte(source, 0); at >= 0 {
		return nil, problem("move it away if it is not a text file", "it has a zero byte, at byte %d, as binary files have", at)
	}
	source = bytes.TrimPrefix(source, []byte("\ufeff"))
	if bytes.IndexByte(source, '\r') >= 0 {
		source = bytes.ReplaceAll(source, []byte("\r\n"), []byte("\n"))
		source = bytes.ReplaceAll(source, []byte("\r"), []byte("\n"))
	}
	return source, nil
}

// plain reads plain text, which has no title of its own.
func plain(l *lines, source []byte) (string, error) {
	l.verbatim(string(source))
	return "", nil
}

// line returns s on one line without control characters, cut to max bytes.
func line(s string, max int) string {
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) || r == '\u2028' || r == '\u2029' }), " ")
	if len(s) <= max {
		return s
	}
	const more = "…"
	cut := max - len(more)
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return strings.TrimSpace(s[:cut]) + more
}

func problem(hint, format string, args ...any) *Problem {
	return &Problem{Reason: fmt.Sprintf(format, args...), Hint: hint}
}
