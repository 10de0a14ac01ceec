package cli

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Flag values: each parses its text once and then holds what the text means. All are pflag.Values,
// and what String returns sets the same value again.

// A Size is a number of bytes, written as a whole number with a unit: 512KiB, 256MiB, 2GiB.
type Size int64

var sizeUnits = []struct {
	name  string
	bytes int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

func (s *Size) Set(value string) error {
	size, ok := parseSize(value)
	if !ok {
		return errors.New("expected a whole number of B, KiB, MiB or GiB, more than zero and with its unit" + sizeLike(value, "256MiB"))
	}
	*s = size
	return nil
}

// cutUnit splits a size into its number and its unit.
func cutUnit(value string) (digits, unit string) {
	digits = strings.TrimRight(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
	return digits, value[len(digits):]
}

func parseSize(value string) (Size, bool) {
	digits, name := cutUnit(value)
	for _, unit := range sizeUnits {
		if name != unit.name {
			continue
		}
		n, err := strconv.ParseUint(digits, 10, 63)
		if err != nil || n == 0 || int64(n) > math.MaxInt64/unit.bytes {
			break
		}
		return Size(int64(n) * unit.bytes), true
	}
	return 0, false
}

// sizeLike returns the end of the error about a text that is no size: the size that it is probably
// meant to be, such as 64MiB for 64MB, else the usual one.
func sizeLike(value, usual string) string {
	digits, name := cutUnit(value)
	for _, unit := range sizeUnits {
		if name == "" || !strings.EqualFold(name, unit.name) && !strings.EqualFold(strings.TrimRight(name, "Bb"), strings.TrimSuffix(unit.name, "iB")) {
			continue
		}
		if meant := strings.TrimSpace(digits) + unit.name; meant != value {
			if _, ok := parseSize(meant); ok {
				return "; did you mean " + meant + "?"
			}
		}
	}
	return ", such as " + usual
}

func (s *Size) String() string {
	for _, unit := range sizeUnits {
		if *s != 0 && int64(*s)%unit.bytes == 0 {
			return strconv.FormatInt(int64(*s)/unit.bytes, 10) + unit.name
		}
	}
	return "0B"
}

func (s *Size) Type() string { return "SIZE" }

// A MinRate is a minimum number of bytes a second. A negative one means that there is no minimum.
type MinRate int64

func (r *MinRate) Set(value string) error {
	if value == "off" {
		*r = -1
		return nil
	}
	var s Size
	if err := s.Set(value); err != nil {
		return errors.New("expected off, or a whole number of B, KiB, MiB or GiB a second, more than zero" + sizeLike(value, "500B"))
	}
	*r = MinRate(s)
	return nil
}

func (r *MinRate) String() string {
	if *r < 0 {
		return "off"
	}
	s := Size(*r)
	return s.String()
}

func (r *MinRate) Type() string { return "SIZE" }

// A Span is a length of time within bounds, both inclusive.
type Span struct {
	time.Duration
	Min, Max time.Duration
}

func (s *Span) Set(value string) error {
	d, err := time.ParseDuration(value)
	if err != nil || d < s.Min || d > s.Max {
		return fmt.Errorf("expected a duration from %v to %v, such as %v", s.Min, s.Max, spanLike(value, s.Duration, s.Min, s.Max))
	}
	s.Duration = d
	return nil
}

// spanLike returns the duration that a text without a unit is probably meant to be: so many
// seconds. Otherwise it is the usual one, else a second, or what is allowed next to it.
func spanLike(text string, usual, shortest, longest time.Duration) time.Duration {
	for _, d := range []time.Duration{seconds(text), usual} {
		if d > 0 && d >= shortest && d <= longest {
			return d
		}
	}
	return max(shortest, min(time.Second, longest))
}

// seconds reads a number without a unit; 0 if it is none.
func seconds(text string) time.Duration {
	d, err := time.ParseDuration(text + "s")
	if err != nil {
		return 0
	}
	return d
}

func (s *Span) Type() string { return "DURATION" }

// A SpanOrOff is a length of time within bounds, both inclusive, or off, which is zero.
type SpanOrOff struct {
	time.Duration
	Min, Max time.Duration
}

func (s *SpanOrOff) Set(value string) error {
	if value == "off" {
		s.Duration = 0
		return nil
	}
	within := Span{Min: s.Min, Max: s.Max}
	if err := within.Set(value); err != nil {
		return fmt.Errorf("expected off, or a duration from %v to %v, such as %v", s.Min, s.Max, spanLike(value, cmp.Or(s.Duration, 10*time.Minute), s.Min, s.Max))
	}
	s.Duration = within.Duration
	return nil
}

func (s *SpanOrOff) String() string {
	if s.Duration == 0 {
		return "off"
	}
	return s.Duration.String()
}

func (s *SpanOrOff) Type() string { return "DURATION" }

// A SizeOrOff is a number of bytes, or off. The zero value is neither.
type SizeOrOff struct {
	Size
	Off bool
}

func (s *SizeOrOff) Set(value string) error {
	var size Size
	if value != "off" {
		if err := size.Set(value); err != nil {
			return errors.New("expected off, or a whole number of B, KiB, MiB or GiB, more than zero and with its unit" + sizeLike(value, "10MiB"))
		}
	}
	*s = SizeOrOff{Size: size, Off: value == "off"}
	return nil
}

func (s *SizeOrOff) String() string {
	switch {
	case s.Off:
		return "off"
	case s.Size == 0:
		return ""
	}
	return s.Size.String()
}

// A Choice is one of a few words. The zero value accepts none.
type Choice struct {
	Value string
	Of    []string
}

func (c *Choice) Set(value string) error {
	if !slices.Contains(c.Of, value) {
		return fmt.Errorf("expected %s", strings.Join(c.Of, " or "))
	}
	c.Value = value
	return nil
}

func (c *Choice) String() string { return c.Value }
func (c *Choice) Type() string   { return strings.Join(c.Of, "|") }

// A Number is a whole number within bounds, both inclusive.
type Number struct {
	Value, Min, Max int
}

func (n *Number) Set(value string) error {
	i, err := strconv.Atoi(value)
	if err != nil || i < n.Min || i > n.Max {
		return fmt.Errorf("expected a whole number from %d to %d", n.Min, n.Max)
	}
	n.Value = i
	return nil
}

func (n *Number) String() string { return strconv.Itoa(n.Value) }
func (n *Number) Type() string   { return "N" }

// An OnOff is a switch. A flag that SwitchFlag has added means on if it has no value.
type OnOff bool

func (o *OnOff) Set(value string) error {
	switch value {
	case "on", "true", "yes", "1":
		*o = true
	case "off", "false", "no", "0":
		*o = false
	default:
		return errors.New("expected on or off")
	}
	return nil
}

func (o *OnOff) String() string {
	if *o {
		return "on"
	}
	return "off"
}

func (o *OnOff) Type() string { return "on|off" }

// A Paths value is a list of files; its flag is repeatable.
type Paths []string

func (p *Paths) Set(value string) error {
	if value == "" {
		return errors.New("expected the name of a file")
	}
	*p = append(*p, value)
	return nil
}

func (p *Paths) String() string  { return strings.Join(*p, ",") }
func (p *Paths) Type() string    { return "FILE" }
func (p *Paths) Items() []string { return *p }
func (p *Paths) Adds() bool      { return true }
func (p *Paths) Repeatable()     {}
