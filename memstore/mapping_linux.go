package memstore

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/weirlimit/weir/internal/owned"
)

// A mapping is a backing in memory that is mapped from a file, or mapped anonymously.
type mapping struct {
	segmentBytes int64
	// of the greatest size; never touched beyond the end of a file that is shorter
	data      []byte
	serial    atomic.Uint64
	finishing sync.Once
	closing   sync.Once

	remapped int // segments that are remapped to anonymous memory; guarded by arena.mu

	file   *os.File // nil if anonymous; then there is no header and there are no records
	lock   *os.File
	seed   seed
	limit  int      // segments that the bound allows
	chunks int      // chunks of the file when it was opened
	found  []record // segments in use when it was opened
	gaps   []scope  // scopes that a power cut destroyed
	clean  bool     // the file was closed cleanly
}

// newMemory returns the backing of a store without a file.
func newMemory(segmentBytes int64, limit int) (backing, error) {
	if raceEnabled {
		return newHeap(segmentBytes), nil
	}
	return newAnonymous(segmentBytes, limit)
}

func newAnonymous(segmentBytes int64, limit int) (*mapping, error) {
	m := &mapping{segmentBytes: segmentBytes}
	size := m.chunkAt(chunksFor(limit))
	data, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("reserve %d bytes of addresses: %w", size, err)
	}
	m.data = data
	return m, nil
}

// chunksFor returns how many chunks hold the given number of segments and one more.
func chunksFor(segments int) int { return segments/chunkSegments + 1 }

// openMapping opens a file of counts, or creates it. If the file is damaged the error is a
// *corruptError.
func openMapping(path string, segmentBytes, memory int64) (*mapping, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		if err := createFile(path, segmentBytes); err != nil {
			return nil, err
		}
		f, err = os.OpenFile(path, os.O_RDWR, 0)
	}
	if err != nil {
		return nil, owned.Explain(err)
	}
	m := &mapping{file: f}
	// opened by another name, or after the lock file was removed
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, &InUseError{File: path}
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	if err := m.read(memory); err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

// createFile creates a file without counts. It writes a temporary file and renames it.
func createFile(path string, segmentBytes int64) error {
	f, err := owned.Anew(path + ".new")
	if err != nil {
		return err
	}
	_, err = f.Write(header(segmentBytes, newSeed()))
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// read maps the file and reads its header and records.
func (m *mapping) read(memory int64) error {
	first := make([]byte, headerBytes)
	n, err := m.file.ReadAt(first, 0)
	if err != nil && err != io.EOF {
		return fmt.Errorf("read %s: %w", m.file.Name(), err)
	}
	m.segmentBytes, m.seed, err = parseHeader(first[:n])
	if later := new(FormatError); errors.As(err, &later) {
		return fmt.Errorf("read %s: %w", m.file.Name(), err)
	}
	if err != nil {
		return &corruptError{err}
	}
	m.limit = maxSegments(memory, m.segmentBytes)
	info, err := m.file.Stat()
	if err != nil {
		return err
	}
	m.chunks = int((info.Size() - headerBytes) / m.stride())
	tail, err := m.hasTail(info.Size())
	if err != nil {
		return err
	}
	size := m.chunkAt(max(chunksFor(m.limit), m.chunks+1))
	m.data, err = unix.Mmap(int(m.file.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map %d bytes of %s: %w", size, m.file.Name(), err)
	}
	m.clean = m.word(atState).Load() == stateClosed
	var records []record
	for id := range uint32(m.chunks * chunkSegments) {
		first, second := m.record(id)
		r, used, err := decode(id, first.Load(), second.Load())
		if err != nil {
			return &corruptError{err}
		}
		if used {
			records = append(records, r)
		}
	}
	if tail {
		return &corruptError{m.tailReason(info.Size(), records)}
	}
	if len(records) == 0 {
		if boot := m.data[atBoot : atBoot+16]; !bytes.Equal(boot, make([]byte, 16)) {
			return &corruptError{errors.New("its counts are missing")}
		}
		return nil
	}
	use, gaps, serial, err := resolveRecords(records)
	if err == nil && len(gaps) > 0 && !m.fromPreviousBoot() {
		err = errors.New("a part of the table is missing")
	}
	if err == nil && len(use)+len(gaps) > max(chunksFor(m.limit), m.chunks+1)*chunkSegments {
		err = errors.New("more of the table is missing than the file has room for")
	}
	if err != nil {
		return &corruptError{err}
	}
	m.found, m.gaps = use, gaps
	m.serial.Store(serial)
	return m.allocateUsed()
}

// hasTail reports whether anything is after the last whole chunk. A process that was killed while
// it extended the file leaves zeros there, which do not count.
func (m *mapping) hasTail(size int64) (bool, error) {
	end := m.chunkAt(m.chunks)
	tail, err := io.ReadAll(io.NewSectionReader(m.file, end, size-end))
	if err != nil {
		return false, fmt.Errorf("read %s: %w", m.file.Name(), err)
	}
	return len(bytes.Trim(tail, "\x00")) > 0, nil
}

// tailReason returns how a file with a tail is damaged: it is too long if its whole chunks, which
// have these records, hold the whole table, else too short.
func (m *mapping) tailReason(size int64, records []record) error {
	if _, gaps, _, err := resolveRecords(records); err == nil && len(gaps) == 0 {
		return fmt.Errorf("it is longer than it should be: %d bytes instead of %d", size, m.chunkAt(m.chunks))
	}
	return errors.New("it was truncated")
}

// allocateUsed allocates disk blocks for all that is in use. A copy of the file may have holes, and
// writing into a hole while the disk is full would end the process.
func (m *mapping) allocateUsed() error {
	err := m.allocateKeep(0, headerBytes)
	inUse := make([]int, m.chunks)
	for _, r := range m.found {
		inUse[r.id/chunkSegments]++
	}
	for chunk, n := range inUse {
		length := int64(recordsPage)
		if n == chunkSegments {
			length = m.stride()
		}
		err = errors.Join(err, m.allocateKeep(m.chunkAt(chunk), length))
	}
	for _, r := range m.found {
		if inUse[r.id/chunkSegments] < chunkSegments {
			err = errors.Join(err, m.allocateKeep(m.offset(r.id), m.segmentBytes))
		}
	}
	if err != nil {
		return fmt.Errorf("allocate disk space for %s: %w", m.file.Name(), err)
	}
	return nil
}

// allocateKeep allocates disk blocks for a part of the file and keeps its content.
func (m *mapping) allocateKeep(at, length int64) error {
	err := m.fallocate(at, length)
	if !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	_, err = m.file.WriteAt(bytes.Clone(m.data[at:at+length]), at)
	return err
}

// fallocate allocates disk blocks for a part of the file, on a file system that supports that.
func (m *mapping) fallocate(at, length int64) error {
	for {
		if err := unix.Fallocate(int(m.file.Fd()), 0, at, length); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// markOpen marks the file as in use under this boot ID.
func (m *mapping) markOpen(log *slog.Logger) {
	if !m.clean && m.fromPreviousBoot() {
		log.Warn("the machine stopped while counts were written: some counts of the last half minute may be missing",
			"file", m.file.Name(), "parts_missing", len(m.gaps))
	}
	boot := bootID()
	copy(m.data[atBoot:], boot[:])
	m.word(atState).Store(stateOpen)
}

// fromPreviousBoot reports whether the file was last opened before the machine's last boot. Then
// what had not been written to the disk may be missing.
func (m *mapping) fromPreviousBoot() bool {
	boot := bootID()
	return !bytes.Equal(m.data[atBoot:atBoot+len(boot)], boot[:])
}

// bootID returns the kernel's ID of this boot, or zeros on a system without one.
func bootID() (id [16]byte) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err == nil {
		hex.Decode(id[:], []byte(strings.ReplaceAll(strings.TrimSpace(string(text)), "-", "")))
	}
	return id
}

func (m *mapping) stride() int64 { return m.records() + chunkSegments*m.segmentBytes }

// records returns the number of bytes of a chunk's records.
func (m *mapping) records() int64 {
	if m.file == nil {
		return 0
	}
	return recordsPage
}

func (m *mapping) chunkAt(chunk int) int64 {
	if m.file == nil {
		return int64(chunk) * m.stride()
	}
	return headerBytes + int64(chunk)*m.stride()
}

func (m *mapping) offset(id uint32) int64 {
	return m.chunkAt(int(id/chunkSegments)) + m.records() + int64(id%chunkSegments)*m.segmentBytes
}

// word returns a word of the header or of a record.
func (m *mapping) word(at int64) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&m.data[at])) }

func (m *mapping) record(id uint32) (first, second *atomic.Uint64) {
	at := m.chunkAt(int(id/chunkSegments)) + int64(id%chunkSegments)*recordBytes
	return m.word(at), m.word(at + 8)
}

func (m *mapping) lines(id uint32) unsafe.Pointer { return unsafe.Pointer(&m.data[m.offset(id)]) }

func (m *mapping) segment(id uint32) []byte {
	at := m.offset(id)
	return m.data[at : at+m.segmentBytes]
}

func (m *mapping) extend(chunk int) error {
	if m.file == nil {
		return nil
	}
	return m.allocate(m.chunkAt(chunk), m.stride())
}

// allocate allocates disk blocks for a part of the file. It may overwrite the content.
func (m *mapping) allocate(at, length int64) error {
	err := m.fallocate(at, length)
	if !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	// a file system without fallocate allocates what is written
	_, err = m.file.WriteAt(make([]byte, length), at)
	return err
}

func (m *mapping) clear(id uint32) { clear(m.segment(id)) }

func (m *mapping) discard(id uint32) bool {
	if !m.wholePages(id) {
		return false
	}
	if m.file == nil {
		return unix.Madvise(m.segment(id), unix.MADV_DONTNEED) == nil
	}
	if m.remapped >= maxRemapped {
		return false
	}
	// A delayed take may still read here, and reading a hole of a file can end the process on a
	// full disk. So the segment is mapped to anonymous memory before the hole is punched.
	if m.remap(id, -1, 0, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE) != nil {
		return false
	}
	m.remapped++
	err := unix.Fallocate(int(m.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, m.offset(id), m.segmentBytes)
	// if punching fails the segment stays, unless it cannot be mapped again
	return err == nil || m.restore(id) != nil
}

func (m *mapping) restore(id uint32) error {
	if m.file != nil {
		if err := m.allocate(m.offset(id), m.segmentBytes); err != nil {
			return err
		}
		if m.wholePages(id) {
			if err := m.remap(id, int(m.file.Fd()), m.offset(id), unix.MAP_SHARED); err != nil {
				return fmt.Errorf("map a segment: %w", err)
			}
			// segments that were free when the file was opened are not counted
			m.remapped = max(m.remapped-1, 0)
		}
	}
	m.clear(id)
	return nil
}

// remap maps other memory to the address of a segment.
func (m *mapping) remap(id uint32, fd int, offset int64, flags int) error {
	segment := m.segment(id)
	_, err := unix.MmapPtr(fd, offset, unsafe.Pointer(unsafe.SliceData(segment)), uintptr(len(segment)),
		unix.PROT_READ|unix.PROT_WRITE, flags|unix.MAP_FIXED)
	return err
}

// wholePages reports whether a segment consists of whole memory pages.
func (m *mapping) wholePages(id uint32) bool {
	page := int64(os.Getpagesize())
	return m.segmentBytes%page == 0 && m.offset(id)%page == 0
}

// maxRemapped bounds the remapped segments: Linux allows a process 65,530 mappings by default.
const maxRemapped = 16384

func (m *mapping) publish(id uint32, s scope) {
	if m.file == nil {
		return
	}
	first, second := m.record(id)
	a, b := record{id, s, m.serial.Add(1)}.encode()
	second.Store(0) // an interrupted rewrite may have left a record
	first.Store(a)
	second.Store(b)
}

func (m *mapping) withdraw(id uint32) {
	if m.file == nil {
		return
	}
	_, second := m.record(id)
	second.Store(0)
}

// detach implements detacher. It marks the file as cleanly closed. A take that is delayed for long
// enough may still read and write the memory, so the mapping is replaced whole by empty memory of
// this process before the file is unlocked.
func (m *mapping) detach() (lock *os.File, err error) {
	m.finishing.Do(func() {
		m.word(atState).Store(stateClosed)
		_, err = unix.MmapPtr(-1, 0, unsafe.Pointer(unsafe.SliceData(m.data)), uintptr(len(m.data)),
			unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE|unix.MAP_FIXED)
		lock, m.lock = m.lock, nil
		err = errors.Join(err, m.closeFiles())
	})
	return lock, err
}

// monotonic returns the machine's monotonic clock, in nanoseconds: that of package time.
func monotonic() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0
	}
	return now.Nano()
}

// closeFiles closes the file and then the lock, so that no other process opens the file before.
func (m *mapping) closeFiles() error {
	unix.Flock(int(m.file.Fd()), unix.LOCK_UN) // needed because the mapping keeps the file open
	err := m.file.Close()
	if m.lock != nil {
		err = errors.Join(err, m.lock.Close())
	}
	return err
}

func (m *mapping) close() (err error) {
	m.finishing.Do(func() {
		if m.file != nil {
			err = m.closeFiles()
		}
	})
	m.closing.Do(func() {
		if m.data != nil {
			err = errors.Join(err, unix.Munmap(m.data))
		}
	})
	return err
}

// lockFile locks the file at path until the returned file is closed or the process ends.
func lockFile(path, name string) (*os.File, error) {
	f, err := owned.Open(path, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		return nil, heldBy(f)
	}
	signLock(f, name)
	return f, nil
}

// signLock writes into the file of a lock which process holds it.
func signLock(f *os.File, name string) {
	if f.Truncate(0) == nil { // best effort: the disk may be full
		_, _ = f.WriteAt(fmt.Appendf(nil, "%d\n%s\n", os.Getpid(), name), 0)
	}
}

func heldBy(f *os.File) *InUseError {
	text, _ := io.ReadAll(io.LimitReader(f, 1024))
	pid, name, _ := strings.Cut(string(text), "\n")
	held := &InUseError{Name: strings.TrimSpace(name)}
	held.PID, _ = strconv.Atoi(pid)
	return held
}
