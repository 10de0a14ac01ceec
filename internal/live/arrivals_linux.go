package live

import (
	"bytes"
	"encoding/binary"
	"path/filepath"
	"syscall"
)

// arrivals report whether a file was renamed into place, which a stat cannot show: a file that was
// removed and written anew is another file too. They serve as evidence only. Changes are found by
// polling, also on file systems without events; there no file is known to be renamed.
type arrivals struct {
	queue int // a descriptor; -1: none
	name  string
	last  arrival
}

// arrivalsAt watches a path that contains no links. If it fails, look returns lost.
func arrivalsAt(path string) *arrivals {
	a := &arrivals{queue: -1, name: filepath.Base(path)}
	queue, err := syscall.InotifyInit1(syscall.IN_NONBLOCK | syscall.IN_CLOEXEC)
	if err != nil {
		return a
	}
	const events = syscall.IN_MOVED_TO | syscall.IN_MOVED_FROM | syscall.IN_CREATE | syscall.IN_DELETE | syscall.IN_MODIFY |
		syscall.IN_MOVE_SELF | syscall.IN_DELETE_SELF | syscall.IN_ONLYDIR
	if _, err := syscall.InotifyAddWatch(queue, filepath.Dir(path), events); err != nil {
		_ = syscall.Close(queue) // nothing was read from it
		return a
	}
	a.queue = queue
	return a
}

// look reads the pending events and returns the last arrival. It does not block.
func (a *arrivals) look() (now arrival) {
	if a.queue < 0 {
		return lost
	}
	var buffer [16 << 10]byte
	for {
		n, err := syscall.Read(a.queue, buffer[:])
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return now
		}
		for events := buffer[:n]; len(events) >= syscall.SizeofInotifyEvent; {
			mask := binary.NativeEndian.Uint32(events[4:])
			end := syscall.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(events[12:]))
			name := bytes.TrimRight(events[syscall.SizeofInotifyEvent:end], "\x00")
			events = events[end:]
			switch {
			case mask&(syscall.IN_MOVE_SELF|syscall.IN_DELETE_SELF|syscall.IN_IGNORED|syscall.IN_UNMOUNT) != 0:
				a.close()
				return lost
			case mask&syscall.IN_Q_OVERFLOW == 0 && string(name) != a.name:
				continue // of another file
			case mask&syscall.IN_MOVED_TO != 0:
				now = renamed
			default:
				now = written
			}
			a.last = now
		}
	}
}

func (a *arrivals) close() {
	if a.queue >= 0 {
		_ = syscall.Close(a.queue) // it was only read
		a.queue = -1
	}
}
