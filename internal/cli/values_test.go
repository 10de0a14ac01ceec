package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// What a flag's value prints is what sets it to the same again: help shows a default that can be
// typed.
func FuzzValuesPrintWhatSetsThem(f *testing.F) {
	for _, seed := range []string{"256MiB", "1B", "8191PiB", "9223372036854775807B", "10.0.0.0/8,2001:db8::/32", "192.0.2.1", ":8080", "[::1]:0",
		"http://127.0.0.1:3000/base", "https://example.com,http://localhost:3000", "*", "on", "-1", "", "\x00", "1e3MiB", "０MiB"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, pair := range [][2]pflag.Value{
			{new(Size), new(Size)}, {new(Prefixes), new(Prefixes)}, {new(ListenAddr), new(ListenAddr)},
			{new(Endpoint), new(Endpoint)}, {new(Origins), new(Origins)}, {new(OnOff), new(OnOff)},
		} {
			first, second := pair[0], pair[1]
			if first.Set(text) != nil {
				continue
			}
			printed := first.String()
			if err := second.Set(printed); err != nil {
				t.Errorf("%T: %q was taken and prints %q, which is refused: %v", first, text, printed, err)
			} else if second.String() != printed {
				t.Errorf("%T: %q prints %q, which prints %q", first, text, printed, second.String())
			}
		}
	})
}

func TestASizeIsAWholeNumberOfAUnit(t *testing.T) {
	for text, want := range map[string]Size{"1B": 1, "512KiB": 512 << 10, "256MiB": 256 << 20, "2GiB": 2 << 30, "8589934591GiB": 8589934591 << 30} {
		t.Run(text, func(t *testing.T) {
			var got Size
			if err := got.Set(text); err != nil || got != want {
				t.Errorf("%s is %d, %v; want %d", text, got, err, want)
			}
		})
	}
	for _, text := range []string{"", "B", "1", "1M", "1mib", "1 MiB", "+1MiB", "-1MiB", "0B", "1.5GiB", "0x10B", "1_000B", "8589934592GiB", "9223372036854775808B"} {
		var got Size
		if err := got.Set(text); err == nil {
			t.Errorf("%q is taken for %d bytes", text, got)
		}
	}
	for text, end := range map[string]string{"64MB": "unit; did you mean 64MiB?", "1M": "; did you mean 1MiB?", "2 gib": "; did you mean 2GiB?", "5kb": "; did you mean 5KiB?", "9b": "; did you mean 9B?",
		"0MB": ", such as 256MiB", "1.5GB": ", such as 256MiB", "64": ", such as 256MiB", "lots": ", such as 256MiB"} {
		if err := new(Size).Set(text); err == nil || !strings.HasSuffix(err.Error(), end) {
			t.Errorf("%q: %v, want %q at its end", text, err, end)
		}
	}
}

// The example of an error is what the text is probably meant to be, else what is in force.
func TestADurationWithoutAUnitIsTakenForSecondsInTheError(t *testing.T) {
	const minute = time.Minute
	for _, c := range []struct {
		span Span
		text string
		want string
	}{
		{Span{Duration: 5 * time.Second, Min: 100 * time.Millisecond, Max: 10 * minute}, "10", "from 100ms to 10m0s, such as 10s"},
		{Span{Duration: 5 * time.Second, Min: 100 * time.Millisecond, Max: 10 * minute}, "1.5", "such as 1.5s"},
		{Span{Duration: 5 * time.Second, Min: 100 * time.Millisecond, Max: 10 * minute}, "100000", "such as 5s"},
		{Span{Duration: 5 * time.Second, Min: 100 * time.Millisecond, Max: 10 * minute}, "soon", "such as 5s"},
		{Span{Max: minute}, "soon", "such as 1s"},
		{Span{Min: 10 * time.Second, Max: minute}, "1s", "such as 10s"},
	} {
		span := c.span
		if err := span.Set(c.text); err == nil || !strings.HasSuffix(err.Error(), c.want) || span != c.span {
			t.Errorf("%q: %v, want %s", c.text, err, c.want)
		}
		off := SpanOrOff(c.span)
		if err := off.Set(c.text); err == nil || !strings.HasSuffix(err.Error(), c.want) {
			t.Errorf("%q or off: %v, want %s", c.text, err, c.want)
		}
	}
	for text, want := range map[string]OnOff{"yes": true, "no": false} {
		o := !want
		if err := o.Set(text); err != nil || o != want {
			t.Errorf("%q: %v, %v", text, o, err)
		}
	}
}
