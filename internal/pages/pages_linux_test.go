package pages

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// resident returns how much of this program's own file is resident.
func resident(t *testing.T) (n int64) {
	t.Helper()
	path, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	all, err := readMappings(file, path)
	if err != nil || len(all) == 0 {
		t.Fatalf("%d mappings, %v", len(all), err)
	}
	for _, m := range all {
		n += m.resident
	}
	return n
}

// What the program has used and does not use again is no longer resident, and the program goes on.
func TestWhatWasUsedOnceIsNotResident(t *testing.T) {
	before := resident(t)
	dropped, err := DropOwn()
	if err != nil || dropped == 0 {
		t.Fatalf("%d bytes were dropped, %v", dropped, err)
	}
	if after := resident(t); after >= before {
		t.Errorf("%d bytes are resident, of %d before", after, before)
	}
	if again, err := DropOwn(); err != nil || again > dropped {
		t.Errorf("the second time %d bytes were dropped, the first time %d; %v", again, dropped, err)
	}
}

const smaps = `00400000-013ba000 r-xp 00000000 fe:00 11878590                           /usr/bin/weir
Size:              16104 kB
Rss:               12692 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me sd 
013ba000-0259c000 r--p 00fba000 fe:00 11878590                           /usr/bin/weir
Rss:               11076 kB
Anonymous:             4 kB
0259c000-026d6000 rw-p 0219c000 fe:00 11878590                           /usr/bin/weir
Rss:                 744 kB
Anonymous:             0 kB
21a942c00000-21a943800000 rw-p 00000000 00:00 0 
Rss:                4852 kB
Anonymous:          4852 kB
7f0000000000-7f0000001000 r-xp 00000000 fe:00 1                          /usr/bin/other
Rss:                   4 kB
Anonymous:             0 kB
`

// Only what is as in the file is dropped: not what can be written, and nothing with a page that was
// changed. What is not known is taken for changed.
func TestWhatWasChangedIsKept(t *testing.T) {
	for text, want := range map[string]string{
		smaps: "400000 ",
		strings.ReplaceAll(smaps, "Anonymous:             4 kB", "Anonymous:             0 kB"): "400000 13ba000 ",
		strings.ReplaceAll(smaps, "Anonymous:             0 kB\n", ""):                          "",
		strings.ReplaceAll(smaps, "/usr/bin/weir", "/usr/bin/weir (deleted)"):                   "",
		"": "",
	} {
		all, err := readMappings(strings.NewReader(text), "/usr/bin/weir")
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, m := range all {
			if m.unchanged() {
				got += fmt.Sprintf("%x ", m.from)
			}
		}
		if got != want {
			t.Errorf("%q are dropped, want %q", got, want)
		}
	}
	for _, text := range []string{
		strings.ReplaceAll(smaps, "12692 kB", "many"),
		strings.ReplaceAll(smaps, "00400000-013ba000", "00400000"),
	} {
		if all, err := readMappings(strings.NewReader(text), "/usr/bin/weir"); err == nil {
			t.Errorf("%+v, want an error", all)
		}
	}
}
