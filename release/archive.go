package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/flate"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// A file is one of an archive or a package: from the disk, or its content.
type file struct {
	Name    string
	Path    string // on the disk; empty if Content is set
	Content []byte
	Mode    fs.FileMode
}

func (f file) read() ([]byte, error) {
	if f.Path == "" {
		return f.Content, nil
	}
	return os.ReadFile(f.Path)
}

// writeArchive writes the program with its license, completions, manual pages and a policy to begin
// with. For Linux it has the units of systemd and their settings too; they expect the program where
// one belongs that no package installs.
func writeArchive(p program, t *texts, out string) error {
	files := []file{{Name: p.executable(), Path: p.Path, Mode: 0o755}}
	files = append(files, t.documents...)
	files = append(files, t.completions()...)
	for _, f := range t.manuals {
		files = append(files, file{Name: "man/" + f.Name, Content: f.Content, Mode: 0o644})
	}
	files = append(files, file{Name: "policy.yaml", Content: t.policy, Mode: 0o644})
	if p.OS == "linux" {
		files = append(files, file{Name: "weir.yaml", Content: t.own("weir.yaml"), Mode: 0o644})
		for _, name := range units {
			unit := bytes.ReplaceAll(t.own(name), []byte("/usr/bin/weir"), []byte("/usr/local/bin/weir"))
			files = append(files, file{Name: "systemd/" + name, Content: unit, Mode: 0o644})
		}
	}
	write, suffix := writeTarXZ, ".tar.xz"
	if p.OS == "windows" {
		write, suffix = writeZip, ".zip"
	}
	target, err := os.Create(filepath.Join(out, p.name()+suffix))
	if err != nil {
		return err
	}
	defer target.Close()
	if err := write(target, p.name(), files, p.Date); err != nil {
		return err
	}
	return target.Close()
}

// writeTarXZ compresses by the command xz. With gzip the program takes a third more, and with
// the xz encoder written in Go a quarter more.
func writeTarXZ(w io.Writer, dir string, files []file, at time.Time) error {
	cmd := exec.Command("xz", "--stdout", "--threads=1", "-9", "--extreme")
	cmd.Stdout = w
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%w: install xz-utils", err)
	}
	err = writeTar(in, dir+"/", files, at)
	if close := in.Close(); err == nil {
		err = close
	}
	if wait := cmd.Wait(); wait != nil {
		return fmt.Errorf("xz: %w: %s", wait, stderr.Bytes())
	}
	return err
}

func writeTar(w io.Writer, prefix string, files []file, at time.Time) error {
	t := tar.NewWriter(w)
	for _, f := range files {
		content, err := f.read()
		if err != nil {
			return err
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: prefix + f.Name, Mode: int64(f.Mode), Size: int64(len(content)), ModTime: at, Format: tar.FormatUSTAR}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(content); err != nil {
			return err
		}
	}
	return t.Close()
}

func writeZip(w io.Writer, dir string, files []file, at time.Time) error {
	z := zip.NewWriter(w)
	z.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) { return flate.NewWriter(w, flate.BestCompression) })
	for _, f := range files {
		content, err := f.read()
		if err != nil {
			return err
		}
		h := &zip.FileHeader{Name: dir + "/" + f.Name, Method: zip.Deflate, Modified: at.UTC()}
		h.SetMode(f.Mode)
		entry, err := z.CreateHeader(h)
		if err != nil {
			return err
		}
		if _, err := entry.Write(content); err != nil {
			return err
		}
	}
	return z.Close()
}
