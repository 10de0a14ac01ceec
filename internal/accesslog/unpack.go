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

// A depacker undoes a compression.
type depacker interface {
	io.Reader
	Reset(from io.Reader) error
}

// packings are how logs are compressed, told by the first bytes.
var packings = []struct {
	name  string
	magic []string
	open  func() (depacker, error) // nil: it is known, and not read
}{
	{"gzip", []string{"\x1f\x8b"}, func() (depacker, error) { return new(gzip.Reader), nil }},
	{"zstd", zstdMagic(), newZstd},
	{"xz", []string{"\xfd7zXZ\x00"}, nil},
	{"bzip2", []string{"BZh"}, nil},
	{"lz4", []string{"\x04\x22\x4d\x18"}, nil},
	{"zip", []string{"PK\x03\x04"}, nil},
}

// zstdMagic returns how a frame begins: one of data, or one of the sixteen to be skipped (RFC 8878, section 3.1).
func zstdMagic() []string {
	all := []string{"\x28\xb5\x2f\xfd"}
	for i := range 16 {
		all = append(all, string([]byte{byte(0x50 + i), 0x2a, 0x4d, 0x18}))
	}
	return all
}

// largestWindow is what zstd's own command line reads without being asked twice.
const largestWindow = 128 << 20

func newZstd() (depacker, error) {
	// One goroutine's work, so that nothing runs on after an error; memory as the file's window needs it.
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(largestWindow))
}

// depackers are those that wait for use, by index into packings.
type depackers [6][]depacker

// unpack returns what a file holds, uncompressed, and the compression's index into packings, -1 for none. d gives the depacker and
// takes it back with put.
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

// put takes back what unpack returned.
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
