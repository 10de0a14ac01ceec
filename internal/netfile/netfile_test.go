package netfile_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir/internal/netfile"
)

func parse(t testing.TB, text string) *netfile.Set {
	t.Helper()
	s, err := netfile.Parse("a.txt", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAFileHasNetworksAddressesAndComments(t *testing.T) {
	s := parse(t, "# the office\r\n10.0.0.0/8 # all of it\r\n\r\n  192.0.2.7\t\n10.1.0.0/16\n10.0.0.0/8\n::ffff:198.51.100.0/120\n::ffff:203.0.113.9\n2001:db8::/32\n2001:DB8:1::1")
	for addr, want := range map[string]bool{
		"10.255.0.1": true, "192.0.2.7": true, "192.0.2.8": false, "198.51.100.77": true, "198.51.101.0": false,
		"203.0.113.9": true, "2001:db8:ffff::1": true, "2001:db9::": false, "11.0.0.0": false,
	} {
		if got := s.Contains(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: %v", addr, got)
		}
	}
	if s.String() != "@a.txt" || s.Len() != 8 {
		t.Errorf("%v has %d networks", s, s.Len())
	}
	if got := s.Network(netip.MustParseAddr("10.1.2.3")); got.String() != "10.1.0.0/16" {
		t.Errorf("10.1.2.3 is in %v", got)
	}
	if got := s.Network(netip.MustParseAddr("11.1.2.3")); got.IsValid() {
		t.Errorf("11.1.2.3 is in %v", got)
	}
}

// Editors of some systems begin a file with a byte order mark.
func TestAByteOrderMarkAtTheBeginningIsIgnored(t *testing.T) {
	for _, text := range []string{"\uFEFF10.0.0.1\n192.0.2.0/24\n", "\uFEFF# office\r\n10.0.0.1\r\n192.0.2.0/24\r\n"} {
		if s := parse(t, text); s.Len() != 2 || !s.Contains(netip.MustParseAddr("10.0.0.1")) {
			t.Errorf("%q has %d networks", text, s.Len())
		}
	}
	_, err := netfile.Parse("a.txt", []byte("\uFEFF10.0.0.1\nx\n"))
	var bad *netfile.Error
	if !errors.As(err, &bad) || bad.Problems[0].Line != 2 {
		t.Errorf("it ends with %v", err)
	}
	if parse(t, "\uFEFF").Len() != 0 {
		t.Error("a file of a mark alone has a network")
	}
}

func TestAnEmptyFileContainsNothing(t *testing.T) {
	for _, text := range []string{"", "\n", "# nothing", "\r\n\r\n"} {
		if s := parse(t, text); s.Len() != 0 || s.Contains(netip.MustParseAddr("0.0.0.0")) || hasAny(s) {
			t.Errorf("%q contains something", text)
		}
	}
}

func hasAny(s *netfile.Set) bool {
	v4, v6 := s.HasAll()
	return v4 || v6
}

func TestAFileOfEveryAddressHasAllOfItsFamily(t *testing.T) {
	for text, want := range map[string][2]bool{
		"0.0.0.0/0": {true, false}, "::/0": {false, true}, "0.0.0.0/0\n::/0": {true, true}, "0.0.0.0/1\n128.0.0.0/1": {true, false}, "0.0.0.0/1": {},
	} {
		if v4, v6 := parse(t, text).HasAll(); v4 != want[0] || v6 != want[1] {
			t.Errorf("%q: IPv4 %v, IPv6 %v", text, v4, v6)
		}
	}
}

func TestEachMalformedLineIsReportedWithWhatIsAllowed(t *testing.T) {
	for line, want := range map[string]string{
		"10.0.0.1/8":               `"10.0.0.1/8" has bits beyond its length: write 10.0.0.0/8, or the address without /8`,
		"fe80::1%eth0":             `"fe80::1%eth0" has a zone`,
		"fe80::%eth0/64":           `has a zone`,
		"10.0.0.0/33":              `"10.0.0.0/33" is not a network`,
		"10.0.0":                   `"10.0.0" is not an address`,
		"010.0.0.1":                `is not an address`,
		"example.com":              `"example.com" is not an address: a line has one network (10.0.0.0/8)`,
		"10.0.0.1, 10.0.0.2":       `"10.0.0.1, 10.0.0.2" has a comma: write each network on a line of its own, without commas`,
		"10.0.0.0/8,":              `"10.0.0.0/8," has a comma: write each network on a line of its own, without commas`,
		"192.0.2.7;":               `"192.0.2.7;" has a semicolon: write each network on a line of its own, without semicolons`,
		"10.0.0.0 255.0.0.0":       `more than one word`,
		"10.99.0.0/":               `is not a network`,
		"::ffff:10.0.0.0/95":       `has bits beyond its length`,
		"\uFEFF10.0.0.1":           `is not an address`,
		"\xff\xfe1\x000":           `is not an address`,
		"wpt_abc_secretsecret":     `"wpt_…" is not an address`,
		strings.Repeat("x", 1<<16): `…" is not an address`,
		"\x1b[2J":                  `"\x1b[2J" is not an address`,
	} {
		_, err := netfile.Parse("a.txt", []byte("10.0.0.0/8\n"+line+"\n"))
		var bad *netfile.Error
		if !errors.As(err, &bad) || len(bad.Problems) != 1 || bad.Problems[0].Line != 2 || !strings.Contains(bad.Problems[0].Message, want) {
			t.Errorf("%.80q: %.300v, want %s", line, err, want)
			continue
		}
		if rule := bad.Problems[0].Rule; rule == "" || len(line) > 9 && strings.Contains(rule, line) || strings.Contains(rule, "secret") {
			t.Errorf("%.80q: the rule is %q", line, rule)
		}
		if strings.Contains(err.Error(), "secret") || len(err.Error()) > 500 {
			t.Errorf("%.80q: %.600v", line, err)
		}
	}
}

func TestProblemsOfOneFileAreBounded(t *testing.T) {
	_, err := netfile.Parse("a.txt", []byte(strings.Repeat("x\n", 1000)))
	var bad *netfile.Error
	if !errors.As(err, &bad) || len(bad.Problems) != netfile.MaxProblems || bad.More != 1000-netfile.MaxProblems {
		t.Errorf("%v", err)
	}
}

func TestALargeFileIsRejected(t *testing.T) {
	for name, text := range map[string][]byte{
		"bytes": make([]byte, netfile.MaxSize+1),
		"lines": []byte(strings.Repeat("\n", netfile.MaxLines) + "10.0.0.1"),
	} {
		if _, err := netfile.Parse("a.txt", text); err == nil || !strings.Contains(err.Error(), "too") {
			t.Errorf("too many %s: %v", name, err)
		}
	}
	parse(t, strings.Repeat("\n", netfile.MaxLines))
}

// A set answers as each of its lines would.
func TestASetContainsWhatItsLinesDo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var text strings.Builder
		var all []netip.Prefix
		addr := rapid.Custom(func(t *rapid.T) netip.Addr {
			if rapid.Bool().Draw(t, "is IPv6") {
				return netip.AddrFrom16([16]byte(rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 128, 255}), 16, 16).Draw(t, "IPv6"))).Unmap()
			}
			return netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 128, 255}), 4, 4).Draw(t, "IPv4")))
		})
		for _, a := range rapid.SliceOfN(addr, 0, 20).Draw(t, "networks") {
			n, err := a.Prefix(rapid.IntRange(0, a.BitLen()).Draw(t, "bits"))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, n)
			fmt.Fprintln(&text, n)
		}
		s, err := netfile.Parse("a", []byte(text.String()))
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range rapid.SliceOfN(addr, 1, 20).Draw(t, "addresses") {
			want := false
			for _, n := range all {
				want = want || n.Contains(a)
			}
			if got := s.Contains(a); got != want {
				t.Fatalf("%v in %v: %v", a, all, got)
			}
		}
	})
}

func TestAPostedPolicyNamesFilesWithoutAPath(t *testing.T) {
	for name, ok := range map[string]bool{
		"a.txt": true, "blocked": true, "a b.txt": true,
		"../a.txt": false, "/etc/passwd": false, "a/b.txt": false, `..\a`: false, ".": false, "..": false, ".hidden": false, "a\x00b": false,
	} {
		if err := netfile.CheckPlain(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("10.0.0.0/8\n::1 # x\r\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := netfile.Parse("a", text)
		if err == nil {
			s.Contains(netip.IPv6Unspecified())
		} else if len(err.Error()) > 1000*(netfile.MaxProblems+1) {
			t.Errorf("%d bytes of problems", len(err.Error()))
		}
	})
}

func BenchmarkLookUp(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	var text strings.Builder
	for range 100_000 {
		fmt.Fprintf(&text, "%d.%d.%d.0/24\n", 1+r.IntN(222), r.IntN(256), r.IntN(256))
	}
	s := parse(b, text.String())
	addrs := make([]netip.Addr, 1024)
	for i := range addrs {
		addrs[i] = netip.AddrFrom4([4]byte{byte(1 + r.IntN(222)), byte(r.IntN(256)), byte(r.IntN(256)), byte(r.IntN(256))})
	}
	for name, lookUp := range map[string]func(netip.Addr){
		"Contains": func(a netip.Addr) { s.Contains(a) },
		"Network":  func(a netip.Addr) { s.Network(a) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				lookUp(addrs[i%len(addrs)])
				i++
			}
		})
	}
}

func BenchmarkParseAMillionLines(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	var text strings.Builder
	for range netfile.MaxLines {
		fmt.Fprintf(&text, "%d.%d.%d.%d\n", 1+r.IntN(222), r.IntN(256), r.IntN(256), r.IntN(256))
	}
	b.ReportAllocs()
	for b.Loop() {
		parse(b, text.String())
	}
}
