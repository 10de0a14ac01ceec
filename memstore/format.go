package memstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/bits"
	"slices"
)

// The file has one page of header and then chunks. A chunk is one page of records, which describe
// its 32 segments, and the segments. The file is written only through the mapping. Integers are
// little-endian. The fixed part of the header and every record have a checksum, because a crash of
// the machine can damage them.

const (
	magic       = "weircnt\n"
	version     = 1
	headerBytes = 4096
	recordsPage = 4096 // of a chunk
	recordBytes = 16

	// The header.
	atMagic        = 0
	atVersion      = 8  // uint32
	atSegmentBytes = 12 // uint32
	atSeed         = 16 // two uint64
	atChecksum     = 32 // uint32, CRC-32C of all before it
	atState        = 64 // uint64
	atBoot         = 72 // 16 bytes: the boot ID under which the file was last opened
	atSharedUntil  = 128

	stateOpen   = 1
	stateClosed = 2
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// header returns the header of a new file.
func header(segmentBytes int64, s seed) []byte {
	b := make([]byte, headerBytes)
	copy(b, magic)
	binary.LittleEndian.PutUint32(b[atVersion:], version)
	binary.LittleEndian.PutUint32(b[atSegmentBytes:], uint32(segmentBytes))
	binary.LittleEndian.PutUint64(b[atSeed:], s.k0)
	binary.LittleEndian.PutUint64(b[atSeed+8:], s.k1)
	binary.LittleEndian.PutUint32(b[atChecksum:], crc32.Checksum(b[:atChecksum], castagnoli))
	binary.LittleEndian.PutUint64(b[atState:], stateClosed)
	return b
}

// parseHeader reads what header wrote. The error describes how the file is damaged.
func parseHeader(b []byte) (segmentBytes int64, s seed, err error) {
	switch {
	case len(b) < headerBytes:
		return 0, s, fmt.Errorf("it has %d bytes, too few for a header", len(b))
	case string(b[:len(magic)]) != magic:
		return 0, s, errors.New("it is not a file of counts")
	case binary.LittleEndian.Uint32(b[atChecksum:]) != crc32.Checksum(b[:atChecksum], castagnoli):
		return 0, s, errors.New("its header is damaged")
	}
	if v := binary.LittleEndian.Uint32(b[atVersion:]); v != version {
		return 0, s, &FormatError{v}
	}
	segmentBytes = int64(binary.LittleEndian.Uint32(b[atSegmentBytes:]))
	if segmentBytes < 2*lineBytes || segmentBytes > 1<<20 || bits.OnesCount64(uint64(segmentBytes)) != 1 {
		return 0, s, fmt.Errorf("its segments have %d bytes", segmentBytes)
	}
	return segmentBytes, seed{binary.LittleEndian.Uint64(b[atSeed:]), binary.LittleEndian.Uint64(b[atSeed+8:])}, nil
}

// A FormatError is returned by New for a file of counts in a format that this version cannot read,
// which a later version wrote. The file is left as it is: to begin without its counts would admit
// callers that have spent their budget.
type FormatError struct{ Format uint32 }

func (e *FormatError) Error() string {
	return fmt.Sprintf("its format is %d, and this version of weir reads only %d: start the version that wrote it, or give another data directory, which begins without counts",
		e.Format, version)
}

// A record describes which positions a segment holds. Every published segment has a greater serial
// than the one before: of two that hold the same position, the one with the greater serial counts.
type record struct {
	id     uint32
	scope  scope
	serial uint64
}

// maxSerial is the greatest serial that a record may have. No store comes near it.
const maxSerial = 1 << 39

// encode returns the record's two words. The first is the prefix with a 1 after its last bit. The
// second is the serial and 24 bits of a checksum; that of a free segment is 0.
func (r record) encode() (first, second uint64) {
	first = r.scope.prefix | 1<<(63-r.scope.depth)
	return first, r.serial<<24 | checksum(r.id, first, r.serial)
}

func checksum(id uint32, first, serial uint64) uint64 {
	var b [20]byte
	binary.LittleEndian.PutUint32(b[:], id)
	binary.LittleEndian.PutUint64(b[4:], first)
	binary.LittleEndian.PutUint64(b[12:], serial)
	return uint64(crc32.Checksum(b[:], castagnoli) & (1<<24 - 1))
}

// decode reads a record. used is false for a free segment.
func decode(id uint32, first, second uint64) (r record, used bool, err error) {
	if second == 0 {
		return r, false, nil
	}
	r = record{id: id, serial: second >> 24}
	if first == 0 || second&(1<<24-1) != checksum(id, first, r.serial) || r.serial > maxSerial {
		return r, false, fmt.Errorf("the record of segment %d is damaged", id)
	}
	low := bits.TrailingZeros64(first)
	r.scope = scope{first &^ (1 << low), uint8(63 - low)}
	return r, true, nil
}

// resolveRecords decides by serial which of the recorded segments hold which positions: after a
// process was killed during a rewrite, both the old and the new segments may be recorded. It
// returns the segments in use with the scope that is left to them, the scopes that no segment has,
// which only a power cut can cause, and the greatest serial.
func resolveRecords(records []record) (use []record, gaps []scope, serial uint64, err error) {
	slices.SortFunc(records, func(a, b record) int {
		if a.serial < b.serial {
			return -1
		}
		return 1
	})
	depth := uint8(1)
	for _, r := range records {
		depth = max(depth, r.scope.depth)
		serial = max(serial, r.serial)
	}
	// impossible, since a keyed hash spreads evenly
	if int(depth) > bits.Len(uint(len(records)))+8 {
		return nil, nil, 0, fmt.Errorf("a segment is split %d times among %d", depth, len(records))
	}
	holder := make([]int32, 1<<depth) // index in records plus one
	for i, r := range records {
		first := r.scope.prefix >> (64 - depth)
		for j := range uint64(1) << (depth - r.scope.depth) {
			holder[first+j] = int32(i + 1)
		}
	}
	held := make([]scopeSum, len(records)+1)
	for i, h := range holder {
		held[h].add(uint64(i))
	}
	// index 0: places without a record; others: what is left is not one scope
	lost := make([]bool, len(records)+1)
	lost[0] = true
	for i, r := range records {
		if held[i+1].n == 0 {
			continue
		}
		left, ok := held[i+1].scope(depth)
		if !ok {
			lost[i+1] = true
			continue
		}
		r.scope = left
		use = append(use, r)
	}
	for i, h := range holder {
		if lost[h] {
			gaps = append(gaps, scope{uint64(i) << (64 - depth), depth})
		}
	}
	return use, mergeScopes(gaps), serial, nil
}

// mergeScopes joins scopes, which are in ascending order, with their buddies for as long as it can.
func mergeScopes(scopes []scope) []scope {
	var out []scope
	for _, s := range scopes {
		for len(out) > 0 && s.depth > 0 && out[len(out)-1] == s.buddy() && s.prefix > s.buddy().prefix {
			s = s.parent()
			out = out[:len(out)-1]
		}
		out = append(out, s)
	}
	return out
}

// A scopeSum is a set of places in a directory, added in ascending order.
type scopeSum struct {
	first, last, n uint64
}

func (s *scopeSum) add(place uint64) {
	if s.n == 0 {
		s.first = place
	}
	s.last = place
	s.n++
}

// scope returns the set as a scope, or false for a set that is not one. A split that was
// interrupted by a kill leaves the whole scope, a half, a quarter, and so on.
func (s *scopeSum) scope(depth uint8) (scope, bool) {
	if s.last-s.first+1 != s.n || bits.OnesCount64(s.n) != 1 || s.first%s.n != 0 {
		return scope{}, false
	}
	return scope{s.first << (64 - depth), depth - uint8(bits.TrailingZeros64(s.n))}, true
}
