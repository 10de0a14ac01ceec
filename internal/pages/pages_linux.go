package pages

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// dropOwn unmaps what is resident of the program's own file.
func dropOwn() (dropped int64, err error) {
	path, err := os.Readlink("/proc/self/exe") // as smaps has it, also if it was replaced since
	if err != nil {
		return 0, err
	}
	file, err := os.Open("/proc/self/smaps")
	if err != nil {
		return 0, err
	}
	defer file.Close()
	all, err := readMappings(file, path)
	if err != nil {
		return 0, err
	}
	for _, m := range all {
		if !m.unchanged() {
			continue
		}
		// Not through a slice: this memory is not Go's.
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.from, m.to-m.from, unix.MADV_DONTNEED); errno != 0 {
			return dropped, fmt.Errorf("madvise %x-%x: %w", m.from, m.to, errno)
		}
		dropped += m.resident
	}
	return dropped, nil
}

// A mapping is a part of a process's memory that a file was mapped to.
type mapping struct {
	from, to  uintptr
	rights    string // as "r-xp"
	resident  int64  // bytes
	anonymous int64  // bytes that are no longer those of the file, as after a relocation
}

// unchanged reports whether all of a mapping can be read from its file again.
func (m *mapping) unchanged() bool {
	return (m.rights == "r-xp" || m.rights == "r--p") && m.anonymous == 0
}

// readMappings reads the mappings of the file at path from smaps, see proc(5).
func readMappings(smaps io.Reader, path string) (all []mapping, err error) {
	var at *mapping
	lines := bufio.NewScanner(smaps)
	for lines.Scan() {
		line := lines.Text()
		name, value, isField := strings.Cut(line, ":")
		if isField && !strings.Contains(name, " ") { // a field of the mapping above it
			if at == nil || name != "Rss" && name != "Anonymous" {
				continue
			}
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			if err != nil {
				return nil, fmt.Errorf("smaps: %q: %w", line, err)
			}
			if name == "Rss" {
				at.resident = kib << 10
			} else {
				at.anonymous = kib << 10
			}
			continue
		}
		if at = nil; !strings.HasSuffix(line, " "+path) {
			continue
		}
		m := mapping{anonymous: 1} // until it is known
		if n, err := fmt.Sscanf(line, "%x-%x %s", &m.from, &m.to, &m.rights); n != 3 {
			return nil, fmt.Errorf("smaps: %q: %w", line, err)
		}
		all = append(all, m)
		at = &all[len(all)-1]
	}
	return all, lines.Err()
}
