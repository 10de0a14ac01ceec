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
)

// The file of grants: a header, a record for each grant, and a checksum of all before it; all integers are little-endian. It is
// replaced whole, so it is as it was before a crash or as it is after.

const (
	grantsMagic   = "weirgrt\n"
	grantsVersion = 1

	grantsAtVersion = 8  // uint32
	grantsAtCount   = 12 // uint32
	grantsAtSeed    = 16 // uint64: which seed the hashes are made with, without telling it
	grantsHeader    = 24

	grantBytes = 32 // the hash, two uint64; limit and until, int64
	mostBytes  = grantsHeader + mostGrants*grantBytes + 4
)

// sign tells seeds apart. No key's hash is one: those have another seed.
func (s seed) sign() uint64 { return siphash.Hash(s.k0, ^s.k1, []byte(grantsMagic)) }

// encodeGrants returns the bytes of a file.
func encodeGrants(of seed, all map[holder]weir.Grant) []byte {
	b := make([]byte, grantsHeader, grantsHeader+len(all)*grantBytes+4)
	copy(b, grantsMagic)
	binary.LittleEndian.PutUint32(b[grantsAtVersion:], grantsVersion)
	binary.LittleEndian.PutUint32(b[grantsAtCount:], uint32(len(all)))
	binary.LittleEndian.PutUint64(b[grantsAtSeed:], of.sign())
	for who, g := range all {
		for _, word := range [...]uint64{who.hi, who.lo, uint64(g.Limit), uint64(g.Until)} {
			b = binary.LittleEndian.AppendUint64(b, word)
		}
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// parseGrants reads what encodeGrants wrote, and the sign of its seed. An error says why the file cannot be trusted.
func parseGrants(b []byte) (all map[holder]weir.Grant, sign uint64, err error) {
	switch {
	case len(b) < grantsHeader+4:
		return nil, 0, fmt.Errorf("it has %d bytes, too few for a header", len(b))
	case len(b) > mostBytes:
		return nil, 0, fmt.Errorf("it has %d bytes, more than the %d of %d grants", len(b), mostBytes, mostGrants)
	case string(b[:len(grantsMagic)]) != grantsMagic:
		return nil, 0, errors.New("it is no file of grants")
	}
	end := len(b) - 4
	if binary.LittleEndian.Uint32(b[end:]) != crc32.Checksum(b[:end], castagnoli) {
		return nil, 0, errors.New("its checksum is wrong")
	}
	if v := binary.LittleEndian.Uint32(b[grantsAtVersion:]); v != grantsVersion {
		return nil, 0, fmt.Errorf("it has format %d, and format %d is known", v, grantsVersion)
	}
	n := int(binary.LittleEndian.Uint32(b[grantsAtCount:]))
	if n > mostGrants || end != grantsHeader+n*grantBytes {
		return nil, 0, fmt.Errorf("it has %d bytes, and says that it has %d grants", len(b), n)
	}
	all = make(map[holder]weir.Grant, n)
	for r := b[grantsHeader:end]; len(r) > 0; r = r[grantBytes:] {
		word := func(i int) uint64 { return binary.LittleEndian.Uint64(r[8*i:]) }
		g := weir.Grant{Limit: int64(word(2)), Until: int64(word(3))}
		if err := checkGrant(g); err != nil || g.Limit == 0 {
			return nil, 0, fmt.Errorf("it has a grant of %d until second %d", g.Limit, g.Until)
		}
		all[holder{word(0), word(1)}] = g
	}
	return all, binary.LittleEndian.Uint64(b[grantsAtSeed:]), nil
}

// readGrants returns the grants that a file has; none where there is no such file, where it cannot be trusted and is set aside, and
// where it belongs to other counts and is removed. An error says that the system would not let it be read.
func readGrants(file string, of seed, log *slog.Logger) (map[holder]weir.Grant, error) {
	b, err := grantsIn(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var all map[holder]weir.Grant
	var sign uint64
	if err == nil {
		if all, sign, err = parseGrants(b); err != nil {
			err = &distrust{err}
		}
	}
	var bad *distrust
	if errors.As(err, &bad) {
		return nil, setAside(file, bad, log, "the file of grants cannot be trusted: it was set aside, and nobody has a grant")
	}
	if err != nil {
		return nil, fmt.Errorf("read grants: %w", err)
	}
	if sign != of.sign() {
		log.Warn("the grants were made for counts that are gone, and for nobody who is counted now: they are dropped", "file", file, "grants", len(all))
		if err := os.Remove(file); err != nil {
			return nil, fmt.Errorf("drop grants: %w", err)
		}
		return nil, nil
	}
	return all, nil
}

// grantsIn reads a file that may be a file of grants.
func grantsIn(file string) ([]byte, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() { // to open one might wait
		return nil, &distrust{errors.New("it is no regular file")}
	}
	if info.Size() > mostBytes {
		return nil, &distrust{fmt.Errorf("it has %d bytes, more than the %d of %d grants", info.Size(), mostBytes, mostGrants)}
	}
	return os.ReadFile(file)
}

// writeGrants replaces the file of grants; it is on the disk when that returns. An error says that it may be as it was. What a process
// leaves behind that is killed meanwhile is FILE.new, which the next to write removes: the lock of the counts is held, so it is
// nobody else's.
func writeGrants(file string, of seed, all map[holder]weir.Grant) error {
	fresh := file + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	dir, err := os.Open(filepath.Dir(file))
	if err != nil {
		return err
	}
	defer dir.Close()
	f, err := os.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
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
	if err := dir.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) { // where a folder cannot be synced the name is as safe as that system makes it
		return err
	}
	return nil
}
