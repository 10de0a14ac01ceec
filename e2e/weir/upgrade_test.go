package weir

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	little "encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// firstData is a data directory of version 0.1.0. Its README.md says how it was made.
const firstData = "testdata/data-0.1.0"

// unpackData returns a copy of a data directory.
func unpackData(t *testing.T, from string) string {
	t.Helper()
	packed, err := os.Open(filepath.Join(from, "data.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	unzipped, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(unzipped); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(h.Name)), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// The token of the first version is valid, and the document that it stored is there.
func TestADataDirectoryOfTheFirstVersionIsServed(t *testing.T) {
	token, err := os.ReadFile(filepath.Join(firstData, "token"))
	if err != nil {
		t.Fatal(err)
	}
	s := serveIn(t, unpackData(t, firstData))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/v1/wp/documents", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	if answer.StatusCode != http.StatusOK || !bytes.Contains(body, []byte("https://example.com/kept")) {
		t.Errorf("%d %s, want the document that version 0.1.0 stored", answer.StatusCode, body)
	}
	if kept, err := filepath.Glob(filepath.Join(s.data, "counters.*aside*")); err != nil || len(kept) > 0 {
		t.Errorf("the counts were put aside: %v %v", kept, err)
	}
}

// After a downgrade the counts may have a format that the older program cannot read. It does not
// start without them.
func TestCountsOfALaterVersionAreNotForgotten(t *testing.T) {
	data := unpackData(t, firstData)
	file := filepath.Join(data, "counters")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const format, checksum = 8, 32 // where memstore has them
	little.LittleEndian.PutUint32(b[format:], 2)
	little.LittleEndian.PutUint32(b[checksum:], crc32.Checksum(b[:checksum], crc32.MakeTable(crc32.Castagnoli)))
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, "serve", "--listen", "127.0.0.1:0", "--admin", "", "--data", data)
	cmd.Env = cleanEnv()
	out, err := cmd.CombinedOutput()
	if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), "its format is 2, and this version of weir reads only 1") {
		t.Errorf("%v\n%s\nwant exit status 1, and which format the counts have", err, out)
	}
	if after, err := os.ReadFile(file); err != nil || !bytes.Equal(after, b) {
		t.Errorf("the counts were changed (%v)", err)
	}
}
