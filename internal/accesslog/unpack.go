package accesslog

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// A depacker decompresses.
type depacker interface {
	io.Reader
	Reset(from io.Reader) error
}

// packings are the compressions that are detected by the first bytes.
var packings = []struct {
	name  string
	magic []string
	open  func() (depacker, error) // nil if the format is detected and cannot be read
}{
	{"gzip", []string{"\x1f\x8b"}, func() (depacker, error) { return new(gzip.Reader), nil }},
	{"zstd", zstdMagic(), newZstd},
	{"xz", []string{"\xfd7zXZ\x00"}, nil},
	{"bzip2", []string{"BZh"}, nil},
	{"lz4", []string{"\x04\x22\x4d\x18"}, nil},
	{"zip", []string{"PK\x03\x04"}, nil},
}

// zstdMagic returns the first bytes of a frame: of a data frame, or of the sixteen kinds of
// skippable frames (RFC 8878, section 3.1).
func zstdMagic() []string {
	all := []string{"\x28\xb5\x2f\xfd"}
	for i := range 16 {
		all = append(all, string([]byte{byte(0x50 + i), 0x2a, 0x4d, 0x18}))
	}
	return all
}

// maxWindow is the largest window that the zstd command accepts by default.
const maxWindow = 128 << 20

func newZstd() (depacker, error) {
	// No concurrency, so nothing runs on after an error, and no more memory than the file's window
	// needs.
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
}

// depackers are unused depackers, by index in packings.
type depackers [6][]depacker

// unpack returns a reader of the decompressed content of a file and the compression's index in
// packings, or -1 if it is not compressed. The caller returns the reader with put.
func (d *depackers) unpack(file io.Reader) (io.Reader, int, error) {
	start := make([]byte, 6)
	n, err := io.ReadFull(file, start)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, -1, err
	}
	start = start[:n]
	whole := io.MultiReader(bytes.NewReader(start), file)
	for i := range packings {
		if !startsWith(start, packings[i].magic) {
			continue
		}
		if packings[i].open == nil {
			return nil, -1, fmt.Errorf("it is compressed with %s: only gzip and zstd are read, so uncompress it first, or through a pipe", packings[i].name)
		}
		from, err := d.take(i)
		if err == nil {
			err = from.Reset(bufio.NewReaderSize(whole, 64<<10))
		}
		if err != nil {
			return nil, -1, fmt.Errorf("uncompress %s: %w", packings[i].name, err)
		}
		return from, i, nil
	}
	return whole, -1, nil
}

func (d *depackers) take(i int) (depacker, error) {
	if n := len(d[i]); n > 0 {
		from := d[i][n-1]
		d[i] = d[i][:n-1]
		return from, nil
	}
	return packings[i].open()
}

// put takes back a reader that unpack returned.
func (d *depackers) put(from io.Reader, i int) {
	if i < 0 || len(d[i]) >= 4 {
		return
	}
	if z, ok := from.(*zstd.Decoder); ok {
		if z.Reset(nil) != nil {
			return
		}
	}
	d[i] = append(d[i], from.(depacker))
}

func startsWith(b []byte, any []string) bool {
	for _, s := range any {
		if bytes.HasPrefix(b, []byte(s)) {
			return true
		}
	}
	return false
}
