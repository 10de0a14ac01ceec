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
)

// A mapping is memory of the system's: that of a file, or anonymous.
type mapping struct {
	segmentBytes int64
	data         []byte // the most there can be; a file may be shorter, and nothing is touched beyond its end
	serial       atomic.Uint64
	finishing    sync.Once
	closing      sync.Once

	elsewhere int // segments with other memory in their place; the arena's lock is held to change it

	file   *os.File // nil: anonymous; then there are no header and no records
	lock   *os.File
	seed   seed
	most   int      // segments that the bound allows
	chunks int      // that the file has
	found  []record // what it held when it was opened,
	gaps   []scope  // and what a power cut had taken from it
	clean  bool     // whether it had been closed in good order
}

// newMemory returns the ground of a store without a file.
func newMemory(segmentBytes int64, most int) (ground, error) {
	if raceEnabled {
		return newHeap(segmentBytes), nil
	}
	return newAnonymous(segmentBytes, most)
}

func newAnonymous(segmentBytes int64, most int) (*mapping, error) {
	m := &mapping{segmentBytes: segmentBytes}
	size := m.chunkAt(chunksFor(most))
	data, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("reserve %d bytes of addresses: %w", size, err)
	}
	m.data = data
	return m, nil
}

// chunksFor returns how many chunks have room for as many segments, and one more.
func chunksFor(most int) int { return most/chunkSegments + 1 }

// openMapping opens a file of counts, or creates it. The error is a distrust where there is a file that is not one.
func openMapping(path string, segmentBytes, memory int64) (*mapping, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		if err := createFile(path, segmentBytes); err != nil {
			return nil, err
		}
		f, err = os.OpenFile(path, os.O_RDWR, 0)
	}
	if err != nil {
		return nil, err
	}
	m := &mapping{file: f}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil { // by another name, or the lock file was removed
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

// createFile makes a file without counts. It is complete when it gets its name.
func createFile(path string, segmentBytes int64) error {
	f, err := os.OpenFile(path+".new", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(header(segmentBytes, newSeed()))
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// read maps the file and finds out what it holds.
func (m *mapping) read(memory int64) error {
	first := make([]byte, headerBytes)
	n, err := m.file.ReadAt(first, 0)
	if err != nil && err != io.EOF {
		return fmt.Errorf("read %s: %w", m.file.Name(), err)
	}
	if m.segmentBytes, m.seed, err = parseHeader(first[:n]); err != nil {
		return &distrust{err}
	}
	m.most = mostSegments(memory, m.segmentBytes)
	info, err := m.file.Stat()
	if err != nil {
		return err
	}
	m.chunks = int((info.Size() - headerBytes) / m.stride())
	if err := m.checkTail(info.Size()); err != nil {
		return err
	}
	size := m.chunkAt(max(chunksFor(m.most), m.chunks+1))
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
			return &distrust{err}
		}
		if used {
			records = append(records, r)
		}
	}
	if len(records) == 0 {
		if boot := m.data[atBoot : atBoot+16]; !bytes.Equal(boot, make([]byte, 16)) {
			return &distrust{errors.New("the counts that it had are gone")}
		}
		return nil
	}
	use, gaps, serial, err := settle(records)
	if err == nil && len(gaps) > 0 && !m.fromBefore() {
		err = errors.New("a part of the table is missing")
	}
	if err == nil && len(use)+len(gaps) > max(chunksFor(m.most), m.chunks+1)*chunkSegments {
		err = errors.New("more is missing than there is room for")
	}
	if err != nil {
		return &distrust{err}
	}
	m.found, m.gaps = use, gaps
	m.serial.Store(serial)
	return m.fill()
}

// checkTail looks at what is behind the last chunk. A process that was killed while it extended the file may have left zeros;
// anything else says that the file has been cut short.
func (m *mapping) checkTail(size int64) error {
	end := m.chunkAt(m.chunks)
	tail, err := io.ReadAll(io.NewSectionReader(m.file, end, size-end))
	if err != nil {
		return fmt.Errorf("read %s: %w", m.file.Name(), err)
	}
	for _, b := range tail {
		if b != 0 {
			return &distrust{errors.New("it is shorter than it was")}
		}
	}
	return nil
}

// fill makes sure that what is in use has its place on the disk: a copy may have been made with holes, and to write into one
// when the disk is full ends the process.
func (m *mapping) fill() error {
	err := m.keep(0, headerBytes)
	inUse := make([]int, m.chunks)
	for _, r := range m.found {
		inUse[r.id/chunkSegments]++
	}
	for chunk, n := range inUse {
		length := int64(recordsPage)
		if n == chunkSegments {
			length = m.stride()
		}
		err = errors.Join(err, m.keep(m.chunkAt(chunk), length))
	}
	for _, r := range m.found {
		if inUse[r.id/chunkSegments] < chunkSegments {
			err = errors.Join(err, m.keep(m.offset(r.id), m.segmentBytes))
		}
	}
	if err != nil {
		return fmt.Errorf("allocate what %s uses of the disk: %w", m.file.Name(), err)
	}
	return nil
}

// keep gives a part of the file its place on the disk, with the bytes that it has.
func (m *mapping) keep(at, length int64) error {
	err := m.promise(at, length)
	if !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	_, err = m.file.WriteAt(bytes.Clone(m.data[at:at+length]), at)
	return err
}

// promise has the file system promise room for a part of the file.
func (m *mapping) promise(at, length int64) error {
	for {
		if err := unix.Fallocate(int(m.file.Fd()), 0, at, length); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// begin marks the file as in use by this process.
func (m *mapping) begin(log *slog.Logger) {
	if !m.clean && m.fromBefore() {
		log.Warn("the machine went down while counts were kept: some of its last half minute may be missing",
			"file", m.file.Name(), "parts_missing", len(m.gaps))
	}
	boot := bootID()
	copy(m.data[atBoot:], boot[:])
	m.word(atState).Store(stateOpen)
}

// fromBefore reports whether the file was last written before this start of the machine: then what had not been written back
// to the disk may be missing.
func (m *mapping) fromBefore() bool {
	boot := bootID()
	return !bytes.Equal(m.data[atBoot:atBoot+len(boot)], boot[:])
}

// bootID names this start of the machine.
func bootID() (id [16]byte) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err == nil {
		hex.Decode(id[:], []byte(strings.ReplaceAll(strings.TrimSpace(string(text)), "-", "")))
	}
	return id
}

func (m *mapping) stride() int64 { return m.records() + chunkSegments*m.segmentBytes }

// records is how long the records of a chunk are.
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

// word returns a word of the header, or of a record.
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

// allocate gives a part of the file its place on the disk. Its bytes, if it had any, are of no use any more.
func (m *mapping) allocate(at, length int64) error {
	err := m.promise(at, length)
	if !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	_, err = m.file.WriteAt(make([]byte, length), at) // a file system that cannot promise room must be given it
	return err
}

func (m *mapping) clear(id uint32) { clear(m.segment(id)) }

func (m *mapping) release(id uint32) bool {
	if !m.wholePages(id) {
		return false
	}
	if m.file == nil {
		return unix.Madvise(m.segment(id), unix.MADV_DONTNEED) == nil
	}
	if m.elsewhere >= mostElsewhere {
		return false
	}
	// A take that was held up may still look here, and a look at a hole in a file can end the process where the disk is full. So
	// nothing of the file's stays here.
	if m.remap(id, -1, 0, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE) != nil {
		return false
	}
	m.elsewhere++
	err := unix.Fallocate(int(m.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, m.offset(id), m.segmentBytes)
	return err == nil || m.restore(id) != nil // what cannot be punched is not given back, but for what cannot be had again either
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
			m.elsewhere = max(m.elsewhere-1, 0) // free ones of a file that was opened never left it
		}
	}
	m.clear(id)
	return nil
}

// remap puts other memory where a segment is.
func (m *mapping) remap(id uint32, fd int, offset int64, flags int) error {
	segment := m.segment(id)
	_, err := unix.MmapPtr(fd, offset, unsafe.Pointer(unsafe.SliceData(segment)), uintptr(len(segment)),
		unix.PROT_READ|unix.PROT_WRITE, flags|unix.MAP_FIXED)
	return err
}

// wholePages reports whether a segment shares no page of the system's with anything else.
func (m *mapping) wholePages(id uint32) bool {
	page := int64(os.Getpagesize())
	return m.segmentBytes%page == 0 && m.offset(id)%page == 0
}

// mostElsewhere is how many segments may have other memory in their place: the system maps no more than 65,530 parts for all
// that the process does.
const mostElsewhere = 16384

func (m *mapping) publish(id uint32, s scope) {
	if m.file == nil {
		return
	}
	first, second := m.record(id)
	a, b := record{id, s, m.serial.Add(1)}.encode()
	second.Store(0) // there may be the record of a rewrite that a kill cut short
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

func (m *mapping) finish() (err error) {
	m.finishing.Do(func() {
		if m.file == nil {
			return
		}
		m.word(atState).Store(stateClosed)
		err = m.closeFiles()
	})
	return err
}

// closeFiles lets go of the lock last: until then nobody else has the file.
func (m *mapping) closeFiles() error {
	unix.Flock(int(m.file.Fd()), unix.LOCK_UN) // the mapping keeps the file open, and may outlive this
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

// lockFile takes the lock that path stands for until the file returned is closed, or the process ends however it ends.
func lockFile(path, name string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
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
	if f.Truncate(0) == nil { // a full disk may keep it from saying who it is, not from being it
		fmt.Fprintf(f, "%d\n%s\n", os.Getpid(), name)
	}
	return f, nil
}

func heldBy(f *os.File) *InUseError {
	text, _ := io.ReadAll(io.LimitReader(f, 1024))
	pid, name, _ := strings.Cut(string(text), "\n")
	held := &InUseError{Name: strings.TrimSpace(name)}
	held.PID, _ = strconv.Atoi(pid)
	return held
}
