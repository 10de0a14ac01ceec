package pacer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/gofrs/flock"
)

// A File is a Shared view in a file, for processes of one machine. It is safe for concurrent use.
//
// The file is a table of pages with a checksum each; a budget's page follows from its key. A
// process holds a system lock (PATH.lock) for some microseconds while it changes a page. If a
// process is killed, the system releases its lock, a half-written page is ignored, and its requests
// in flight are forgotten after a minute. The file holds no secrets: keys are hashes. But a process
// that can write to it can delay others, so keep it in a private directory.
type File struct {
	file *os.File
	lock *flock.Flock
	path string
	busy chan struct{} // holds one: the lock is per process, not per goroutine
	now  func() time.Time
}

const (
	fileMagic = "weirpace1\n"
	pageSize  = 4096
	pages     = 256 // 1 MiB; a page holds about ten budgets
	keySize   = 32
	// lockWait is how long a File waits for the lock: a suspended process that holds it must not
	// stop the others.
	lockWait = 250 * time.Millisecond
)

// OpenFile opens the view at path. If there is none it creates one, readable and writable by its
// owner only. A file of another kind is an error, and is not changed.
func OpenFile(path string) (*File, error) {
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("open shared view %q: it is not a regular file: choose another path", path)
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open shared view: %w", err)
	}
	f := &File{file: file, lock: flock.New(path+".lock", flock.SetPermissions(0o600)), path: path, busy: make(chan struct{}, 1), now: time.Now}
	if err := f.locked(f.prepare); err != nil {
		f.Close()
		return nil, fmt.Errorf("open shared view %q: %w", path, err)
	}
	return f, nil
}

// prepare writes the header of a new file, and checks the header of an existing one.
func (f *File) prepare() error {
	head := make([]byte, len(fileMagic))
	switch n, err := f.file.ReadAt(head, 0); {
	case n == 0 && errors.Is(err, io.EOF):
		_, err = f.file.WriteAt([]byte(fileMagic), 0)
		return err
	case err != nil && !errors.Is(err, io.EOF):
		return err
	case string(head[:n]) != fileMagic:
		return fmt.Errorf("it begins with %q and is not a shared view: choose another path", head[:n])
	}
	return nil
}

// Close closes the file. It does not remove it.
func (f *File) Close() error {
	return errors.Join(f.lock.Close(), f.file.Close())
}

// locked calls do while it excludes every other process and goroutine.
func (f *File) locked(do func() error) error {
	limit := time.NewTimer(lockWait)
	defer limit.Stop()
	select {
	case f.busy <- struct{}{}:
		defer func() { <-f.busy }()
	case <-limit.C:
		return fmt.Errorf("waited %v for the lock: another goroutine holds it", lockWait)
	}
	for pause := 50 * time.Microsecond; ; pause = min(2*pause, 2*time.Millisecond) {
		ok, err := f.lock.TryLock()
		if err != nil {
			return fmt.Errorf("lock %q: %w", f.path+".lock", err)
		}
		if ok {
			defer f.lock.Unlock()
			return do()
		}
		again := time.NewTimer(pause)
		select {
		case <-again.C:
		case <-limit.C:
			again.Stop()
			return fmt.Errorf("waited %v for %q: a process holds the lock and does not continue", lockWait, f.path+".lock")
		}
	}
}

// Update implements Shared. States have at most 4050 bytes; an empty one is removed. After an error
// the state is unchanged, unless the disk failed.
func (f *File) Update(key string, change func([]byte) []byte) error {
	if len(key) != keySize {
		return fmt.Errorf("update shared view %q: a key of %d bytes: %d are allowed", f.path, len(key), keySize)
	}
	at := pageSize * (1 + int64(binary.LittleEndian.Uint64([]byte(key))%pages))
	err := f.locked(func() error {
		var page [pageSize]byte
		if _, err := f.file.ReadAt(page[:], at); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		entries := parsePage(page[:])
		state := change(entries.of(key))
		if len(state) > maxStateSize {
			return fmt.Errorf("a state of %d bytes: at most %d fit", len(state), maxStateSize)
		}
		_, err := f.file.WriteAt(entries.with(key, state, f.now().Unix()).page(page[:0]), at)
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrClosed) {
		return fmt.Errorf("update shared view %q: %w", f.path, err)
	}
	return err
}

// A page is a checksum (CRC-32 of the rest) and entries: key, Unix second of the change, length of
// the state, state. A length of 0 ends the entries.
type entry struct {
	key   string
	at    int64
	state []byte
}

type entries []entry

const (
	entryHead    = keySize + 8 + 2
	maxStateSize = pageSize - 4 - entryHead
)

// parsePage returns the entries of a page, or none if the page was half written.
func parsePage(page []byte) (all entries) {
	sum, rest := binary.LittleEndian.Uint32(page), page[4:]
	if sum != crc32.ChecksumIEEE(rest) {
		return nil
	}
	for len(rest) > entryHead {
		n := int(binary.LittleEndian.Uint16(rest[keySize+8:]))
		if n == 0 || n > len(rest)-entryHead {
			break
		}
		all = append(all, entry{string(rest[:keySize]), int64(binary.LittleEndian.Uint64(rest[keySize:])), append([]byte(nil), rest[entryHead:entryHead+n]...)})
		rest = rest[entryHead+n:]
	}
	return all
}

// of returns the state under a key, or nil.
func (all entries) of(key string) []byte {
	for _, e := range all {
		if e.key == key {
			return e.state
		}
	}
	return nil
}

// with returns the entries that fit a page, the changed one first. The oldest are dropped.
func (all entries) with(key string, state []byte, now int64) entries {
	var kept entries
	if len(state) > 0 {
		kept = entries{{key, now, state}}
	}
	room := maxStateSize - len(state)
	for _, e := range all { // ordered by their last changes
		if room -= entryHead + len(e.state); e.key == key || room < 0 || now-e.at > 3600 {
			room += entryHead + len(e.state)
			continue
		}
		kept = append(kept, e)
	}
	return kept
}

// page appends the bytes of a page to dst.
func (all entries) page(dst []byte) []byte {
	dst = append(dst, 0, 0, 0, 0)
	for _, e := range all {
		dst = append(dst, e.key...)
		dst = binary.LittleEndian.AppendUint64(dst, uint64(e.at))
		dst = binary.LittleEndian.AppendUint16(dst, uint16(len(e.state)))
		dst = append(dst, e.state...)
	}
	dst = append(dst, make([]byte, pageSize-len(dst))...)
	binary.LittleEndian.PutUint32(dst, crc32.ChecksumIEEE(dst[4:]))
	return dst
}
