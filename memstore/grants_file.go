package memstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"

	"github.com/dchest/siphash"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/owned"
)

// The file of grants is a header, one record for each grant, and a checksum of all that. Integers
// are little-endian. The file is always replaced whole, so after a crash it is either the old one
// or the new one.

const (
	grantsMagic   = "weirgrt\n"
	grantsVersion = 1

	grantsAtVersion = 8  // uint32
	grantsAtCount   = 12 // uint32
	grantsAtSeed    = 16 // uint64: fingerprint of the seed of the hashes
	grantsHeader    = 24

	grantBytes     = 32 // the hash, two uint64; limit and until, int64
	maxGrantsBytes = grantsHeader + maxGrants*grantBytes + 4
)

// fingerprint identifies a seed without revealing it. It is hashed with another seed than keys, so
// it is no key's hash either.
func (s seed) fingerprint() uint64 { return siphash.Hash(s.k0, ^s.k1, []byte(grantsMagic)) }

// encodeGrants returns the content of a file of grants.
func encodeGrants(of seed, all map[grantKey]weir.Grant) []byte {
	b := make([]byte, grantsHeader, grantsHeader+len(all)*grantBytes+4)
	copy(b, grantsMagic)
	binary.LittleEndian.PutUint32(b[grantsAtVersion:], grantsVersion)
	binary.LittleEndian.PutUint32(b[grantsAtCount:], uint32(len(all)))
	binary.LittleEndian.PutUint64(b[grantsAtSeed:], of.fingerprint())
	for key, g := range all {
		for _, word := range [...]uint64{key.hi, key.lo, uint64(g.Limit), uint64(g.Until)} {
			b = binary.LittleEndian.AppendUint64(b, word)
		}
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// parseGrants reads what encodeGrants wrote, and the fingerprint of the seed. The error describes
// how the file is damaged.
func parseGrants(b []byte) (all map[grantKey]weir.Grant, fingerprint uint64, err error) {
	switch {
	case len(b) < grantsHeader+4:
		return nil, 0, fmt.Errorf("it has %d bytes, too few for a header", len(b))
	case len(b) > maxGrantsBytes:
		return nil, 0, fmt.Errorf("it has %d bytes, more than the %d of %d grants", len(b), maxGrantsBytes, maxGrants)
	case string(b[:len(grantsMagic)]) != grantsMagic:
		return nil, 0, errors.New("it is not a file of grants")
	}
	end := len(b) - 4
	if binary.LittleEndian.Uint32(b[end:]) != crc32.Checksum(b[:end], castagnoli) {
		return nil, 0, errors.New("its checksum is wrong")
	}
	if v := binary.LittleEndian.Uint32(b[grantsAtVersion:]); v != grantsVersion {
		return nil, 0, fmt.Errorf("its format is %d; only %d is supported", v, grantsVersion)
	}
	n := int(binary.LittleEndian.Uint32(b[grantsAtCount:]))
	if n > maxGrants || end != grantsHeader+n*grantBytes {
		return nil, 0, fmt.Errorf("it has %d bytes, which does not fit its count of %d grants", len(b), n)
	}
	all = make(map[grantKey]weir.Grant, n)
	for r := b[grantsHeader:end]; len(r) > 0; r = r[grantBytes:] {
		word := func(i int) uint64 { return binary.LittleEndian.Uint64(r[8*i:]) }
		g := weir.Grant{Limit: int64(word(2)), Until: int64(word(3))}
		if err := checkGrant(g); err != nil || g.Limit == 0 {
			return nil, 0, fmt.Errorf("it has a grant of %d until second %d", g.Limit, g.Until)
		}
		all[grantKey{word(0), word(1)}] = g
	}
	return all, binary.LittleEndian.Uint64(b[grantsAtSeed:]), nil
}

// readGrants returns the grants in a file. It returns none if the file does not exist, if it is
// damaged (then it is set aside), or if it belongs to other counts (then it is removed). It returns
// an error if the file cannot be read.
func readGrants(file string, of seed, log *slog.Logger) (map[grantKey]weir.Grant, error) {
	all, fingerprint, err := loadGrants(file)
	if all == nil && err == nil {
		return nil, nil
	}
	var corrupt *corruptError
	if errors.As(err, &corrupt) {
		return nil, setAside(file, corrupt, log, "the file of grants is damaged: it was set aside, and no grant is in force")
	}
	if err != nil {
		return nil, fmt.Errorf("read grants: %w", err)
	}
	if fingerprint != of.fingerprint() {
		log.Warn("the grants belong to counts that no longer exist, so they were dropped", "file", file, "grants", len(all))
		if err := os.Remove(file); err != nil {
			return nil, fmt.Errorf("drop grants: %w", err)
		}
		return nil, nil
	}
	return all, nil
}

// loadGrants returns the grants in a file and the fingerprint of their seed; no map without a file.
// The error of a damaged file is a *corruptError.
func loadGrants(file string) (all map[grantKey]weir.Grant, fingerprint uint64, err error) {
	b, err := grantsIn(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	if all, fingerprint, err = parseGrants(b); err != nil {
		return nil, 0, &corruptError{err}
	}
	return all, fingerprint, nil
}

// grantsIn reads a file, unless it cannot be a file of grants.
func grantsIn(file string) ([]byte, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() { // opening a pipe could block
		return nil, &corruptError{errors.New("it is not a regular file")}
	}
	if info.Size() > maxGrantsBytes {
		return nil, &corruptError{fmt.Errorf("it has %d bytes, more than the %d of %d grants", info.Size(), maxGrantsBytes, maxGrants)}
	}
	b, err := os.ReadFile(file)
	return b, owned.Explain(err)
}

// writeGrants replaces the file of grants and syncs it. After an error the file may be unchanged. A
// process that is killed meanwhile leaves FILE.new behind, which the next writer removes: it holds
// the lock of the counts, so the file cannot be another process's.
func writeGrants(file string, of seed, all map[grantKey]weir.Grant) error {
	fresh := file + ".new"
	dir, err := os.Open(filepath.Dir(file))
	if err != nil {
		return err
	}
	defer dir.Close()
	f, err := owned.Anew(fresh)
	if err != nil {
		return err
	}
	_, err = f.Write(encodeGrants(of, all))
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(fresh, file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(fresh))
	}
	// EINVAL: this file system cannot sync directories
	if err := dir.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) {
		return err
	}
	return nil
}
