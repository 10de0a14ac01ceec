package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// An apk is two tar files, each compressed by itself: the first describes the package and has no
// end of a tar file, so that both are one when they are decompressed as one. A member of the second
// has its sum in a pax header. https://wiki.alpinelinux.org/wiki/Apk_spec
func TestAnAPKHasTheStructureThatAlpineReads(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	if err := pack([]program{standIn(t, dir, time.Unix(0, 0))}, someTexts(t), out); err != nil {
		t.Fatal(err)
	}
	apk, err := os.ReadFile(filepath.Join(out, "weir_0.1.0-r1_x86_64.apk"))
	if err != nil {
		t.Fatal(err)
	}
	control, data := cutMember(t, apk)
	description := members(t, control)
	var names []string
	for _, m := range description {
		names = append(names, m.Name)
	}
	if want := []string{".PKGINFO", ".post-upgrade", ".pre-deinstall", ".pre-install"}; !slices.Equal(names, want) {
		t.Errorf("the first part has %q, want %q", names, want)
	}
	for _, m := range description[1:] {
		if m.Mode&0o111 == 0 || !strings.HasPrefix(string(m.content), "#!/bin/sh\n") {
			t.Errorf("%s has mode %o and begins with %.20q", m.Name, m.Mode, m.content)
		}
	}
	checkControl(t, string(description[0].content), data)

	byName := map[string]member{}
	for _, m := range members(t, data) {
		byName[m.Name] = m
		if sum := sha1.Sum(m.content); m.Typeflag == tar.TypeReg && m.PAXRecords["APK-TOOLS.checksum.SHA1"] != hex.EncodeToString(sum[:]) {
			t.Errorf("%s has the sum %q", m.Name, m.PAXRecords["APK-TOOLS.checksum.SHA1"])
		}
	}
	for name, mode := range map[string]int64{"usr/bin/weir": 0o755, "etc/init.d/weir": 0o755, "etc/logrotate.d/weir": 0o644, "etc/weir/policy.yaml": 0o644, "etc/weir/weir.yaml": 0o644} {
		if m, ok := byName[name]; !ok || m.Mode&0o777 != mode || m.Uid != 0 || m.Gid != 0 {
			t.Errorf("%s: in the package %v, mode %o of %d:%d", name, ok, m.Mode, m.Uid, m.Gid)
		}
	}
	for name := range byName {
		if strings.Contains(name, "systemd") {
			t.Errorf("%s is of no use on Alpine", name)
		}
	}
}

// checkControl checks the fields of .PKGINFO, of which the last is the sum of the other part.
func checkControl(t *testing.T, control string, data []byte) {
	t.Helper()
	fields := map[string][]string{}
	for line := range strings.Lines(control) {
		if strings.HasPrefix(line, " ") {
			t.Errorf("a field goes on in %q", line)
		}
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " = "); ok && !strings.HasPrefix(name, "#") {
			fields[name] = append(fields[name], value)
		}
	}
	sum := sha256.Sum256(data)
	for name, want := range map[string]string{
		"pkgname": "weir", "pkgver": "0.1.0-r1", "arch": "x86_64", "pkgdesc": "Rate-limiting edge for HTTP APIs", "license": "Apache-2.0", "url": homepage, "datahash": hex.EncodeToString(sum[:]),
	} {
		if !slices.Equal(fields[name], []string{want}) {
			t.Errorf("%s is %q, want %q", name, fields[name], want)
		}
	}
}

// cutMember cuts a file of gzip's where its first member ends.
func cutMember(t *testing.T, file []byte) (first, rest []byte) {
	t.Helper()
	r := bytes.NewReader(file) // an io.ByteReader, so gzip reads no byte too much
	z, err := gzip.NewReader(r)
	if err != nil {
		t.Fatal(err)
	}
	z.Multistream(false)
	if _, err := io.Copy(io.Discard, z); err != nil {
		t.Fatal(err)
	}
	return file[:len(file)-r.Len()], file[len(file)-r.Len():]
}

// A member is one of a tar file.
type member struct {
	*tar.Header
	content []byte
}

func members(t *testing.T, compressed []byte) (list []member) {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, member{h, b})
	}
}
