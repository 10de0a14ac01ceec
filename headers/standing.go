package headers

import (
	"math"
	"strings"
	"time"
)

// A Standing is the state of one budget, as a response of any server describes it.
type Standing struct {
	Name      string // of the budget, if the server sends one; else empty
	Limit     int64  // units of a whole window, at least 1; 0: unknown
	Remaining int64  // units left

	// The budget is restored at Reset, in Unix seconds and rounded up, or After the response by
	// that much. One of the two is 0: the one that the server did not send.
	Reset int64
	After time.Duration
	Plain bool // After was a number without a unit, which is read as seconds
}

// A Hint has other facts of a response that help to read its Reset.
type Hint struct {
	Date       int64         // Unix seconds, as Fields has it; 0: unknown
	RetryAfter time.Duration // of a refusal, as ReadRetryAfter returns it; 0: unknown
}

// A dialect is one set of names for the three fields of a budget. The names have the form of
// http.CanonicalHeaderKey, so that looking them up does not allocate.
type dialect struct {
	limit, remaining, reset string
	// spent means that the units are not requests, so the window matters only if nothing is left.
	spent bool
}

// The dialects that Read knows. Of two with the same limit, Read uses the first that the response
// has: Discord sends X-RateLimit-Reset too.
var dialects = []dialect{
	{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset-After", false}, // Discord
	// GitHub and Envoy.
	{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", false},
	// Drafts 3 to 6, and Kong.
	{"Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset", false},
	{"X-Rate-Limit-Limit", "X-Rate-Limit-Remaining", "X-Rate-Limit-Reset", false}, // X, Okta
	// OpenAI and Anthropic limit requests, and tokens of a language model.
	{"X-Ratelimit-Limit-Requests", "X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests", false},
	{"X-Ratelimit-Limit-Tokens", "X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens", true},
	{"Anthropic-Ratelimit-Requests-Limit", "Anthropic-Ratelimit-Requests-Remaining", "Anthropic-Ratelimit-Requests-Reset", false},
	{"Anthropic-Ratelimit-Tokens-Limit", "Anthropic-Ratelimit-Tokens-Remaining", "Anthropic-Ratelimit-Tokens-Reset", true},
}

// The fields in which servers send the name of a budget.
var budgetNames = [...]string{"X-Ratelimit-Bucket", "X-Ratelimit-Resource"} // Discord, GitHub

// Read reads the state of a budget from the response of any server: the contract's fields, those of
// the IETF drafts (RateLimit with RateLimit-Policy, and RateLimit-Limit, -Remaining and -Reset),
// and those of a table of dialects. get is as for Parse. If a response describes several budgets,
// Read returns the one with the smallest Remaining, and of equals the one that is restored last. A
// budget of other units than requests (tokens of a language model) matters only if it is spent.
//
// The form of a Reset decides what it means. If a form has two meanings, the longer wait is used:
//
//   - 2026-11-22T04:26:25Z and HTTP dates are times. A date without a zone is UTC.
//   - 6m0s, 1s and 20ms are time left.
//   - A number of up to MaxReset is seconds left. It is milliseconds left if the response proves
//     that: it is more than the window's length in seconds (the parameter w), or Retry-After is a
//     thousandth of it.
//   - A larger number of up to eleven digits is Unix seconds if it is at least 100,000,000, or
//     within MaxReset of Hint.Date, and else milliseconds left.
//   - A number of twelve to fourteen digits is Unix milliseconds.
//
// Numbers may have a fraction, and are rounded up. A sign, an empty value and a field with two
// values are a *FieldError. If the response has no known fields, the error is ErrAbsent. The caller
// decides what to do with a Reset that is past, or implausibly far away.
func Read(get func(name string) []string, h Hint) (Standing, error) {
	best, found := Standing{}, false
	var broken error
	consider := func(s Standing, err error, spent bool) {
		switch {
		case err == ErrAbsent:
		case err != nil:
			broken = err
		case spent && s.Remaining > 0:
		case !found || s.Remaining < best.Remaining || s.Remaining == best.Remaining && s.later(best, h.Date):
			best, found = s, true
		}
	}
	s, err := readList(get)
	consider(s, err, false)
	read := "" // the field of the last budget that was read
	for _, d := range dialects {
		if d.limit == read {
			continue
		}
		s, err := d.read(get, h)
		consider(s, err, d.spent)
		if err == nil {
			read = d.limit
		}
	}
	switch {
	case found:
		return best, nil
	case broken != nil:
		return Standing{}, broken
	}
	return Standing{}, ErrAbsent
}

// MaxReset is the longest time left that a number without a unit can mean in seconds: a month has
// 31 days, and clocks may be set back in it.
const MaxReset = 32 * 24 * time.Hour

// later reports whether s is restored more than a second after other. A response that describes one
// budget in two dialects may differ by a second. date is the time of the response, in Unix seconds.
func (s Standing) later(other Standing, date int64) bool {
	return s.left(date) > other.left(date)+1
}

// left returns the seconds until the budget is restored.
func (s Standing) left(date int64) float64 {
	if s.Reset > 0 {
		return float64(s.Reset - date)
	}
	return s.After.Seconds()
}

// read reads one dialect. The error is ErrAbsent unless the response has all three of its fields.
func (d dialect) read(get func(string) []string, h Hint) (s Standing, err error) {
	limits, remaining, resets := get(d.limit), get(d.remaining), get(d.reset)
	if len(limits) == 0 || len(remaining) == 0 || len(resets) == 0 {
		return Standing{}, ErrAbsent
	}
	var window int64
	if s.Limit, window, err = readLimit(d.limit, limits); err != nil {
		return Standing{}, err
	}
	if s.Remaining, err = readOne(d.remaining, remaining); err != nil {
		return Standing{}, err
	}
	if len(resets) > 1 {
		return Standing{}, twice(d.reset, resets)
	}
	if err = s.readReset(d, resets[0], h, window); err != nil {
		return Standing{}, err
	}
	if strings.HasPrefix(d.limit, "X-Ratelimit-Limit") {
		s.Name = BudgetName(get)
	}
	return s, nil
}

// BudgetName returns the name of the budget that a response's X-RateLimit fields describe: the
// value of X-RateLimit-Bucket, else of X-RateLimit-Resource, else an empty string. get is as for
// Read. BudgetName does not allocate.
func BudgetName(get func(name string) []string) string {
	for _, name := range budgetNames {
		if names := get(name); len(names) == 1 {
			return names[0]
		}
	}
	return ""
}

// readLimit reads a limit, which may be followed by the windows that it was chosen from: 10,
// 10;w=60, 500;w=3600. window is the length of the first window with that limit in seconds, 0 if
// unknown.
func readLimit(name string, values []string) (limit, window int64, err error) {
	text := strings.Join(values, ",")
	first, rest, listed := strings.Cut(text, ",")
	number, parameters, _ := strings.Cut(first, ";")
	if limit, err = ParseInt(name, strings.TrimSpace(number)); err != nil {
		return 0, 0, err
	}
	if len(values) > 1 && !strings.Contains(text, ";") {
		return 0, 0, twice(name, values)
	}
	if limit < 1 {
		return 0, 0, &FieldError{Field: name, Value: text, Problem: "is 0: a budget has at least 1 unit"}
	}
	if window = lengthOf(parameters); window > 0 || !listed {
		return limit, window, nil
	}
	for policy := range strings.SplitSeq(rest, ",") {
		number, parameters, _ := strings.Cut(policy, ";")
		if n, err := ParseInt(name, strings.TrimSpace(number)); err == nil && n == limit {
			return limit, lengthOf(parameters), nil
		}
	}
	return limit, 0, nil
}

// lengthOf returns the parameter w, 0 if there is none.
func lengthOf(parameters string) int64 {
	for p := range strings.SplitSeq(parameters, ";") {
		if w, ok := strings.CutPrefix(strings.TrimSpace(p), "w="); ok {
			if n, err := ParseInt("w", w); err == nil {
				return n
			}
		}
	}
	return 0
}

func readOne(name string, values []string) (int64, error) {
	if len(values) > 1 {
		return 0, twice(name, values)
	}
	return ParseInt(name, values[0])
}

// readReset reads the last field of a dialect. window is the length of the window in seconds, 0 if
// unknown.
func (s *Standing) readReset(d dialect, value string, h Hint, window int64) error {
	if unix, ok := parseTime(value); ok {
		s.Reset = unix
		return nil
	}
	if after, err := time.ParseDuration(value); err == nil && after >= 0 && value[len(value)-1] >= 'a' && value[0] != '-' && value[0] != '+' {
		s.After = after
		return nil
	}
	number, ok := parseDecimal(value)
	if !ok {
		return &FieldError{Field: d.reset, Value: value, Problem: "is neither a number, a duration such as 6m0s, nor a date"}
	}
	const unixSeconds, unixMillis, end = 1e8, 1e11, 1e14
	months, near := MaxReset.Seconds(), h.Date > 0 && math.Abs(number-float64(h.Date)) <= MaxReset.Seconds()
	switch {
	case strings.HasSuffix(d.reset, "-After") && number <= months:
		s.After = seconds(number)
	case number <= months && inMillis(number, h, window):
		s.After = seconds(number / 1000)
	case number <= months:
		s.After, s.Plain = seconds(number), true
	case number >= end:
		return &FieldError{Field: d.reset, Value: value, Problem: "is too large: at most fourteen digits are a time"}
	case number >= unixMillis:
		s.Reset = int64(math.Ceil(number / 1000))
	case near, number >= unixSeconds:
		s.Reset = int64(math.Ceil(number))
	default:
		s.After = seconds(number / 1000)
	}
	return nil
}

// inMillis reports whether a response proves that a time left is in milliseconds.
func inMillis(number float64, h Hint, window int64) bool {
	if window > 0 && number > float64(window) {
		return number <= float64(window)*1000
	}
	return h.RetryAfter > 0 && number >= 500 && math.Abs(number/1000-h.RetryAfter.Seconds()) <= 1
}

// seconds is a number of seconds, rounded up to a nanosecond. The number is at most some months.
func seconds(n float64) time.Duration { return time.Duration(math.Ceil(n * 1e9)) }

func twice(name string, values []string) error {
	_, _, err := single(func(string) []string { return values }, name)
	return err
}

// parseDecimal reads digits with an optional fraction.
func parseDecimal(value string) (n float64, ok bool) {
	whole, fraction, dotted := strings.Cut(value, ".")
	if dotted && (fraction == "" || len(fraction) > 9) || len(whole) > 18 {
		return 0, false
	}
	i, err := ParseInt("", whole)
	if err != nil {
		return 0, false
	}
	n = float64(i)
	if dotted {
		part, err := ParseInt("", fraction)
		if err != nil {
			return 0, false
		}
		n += float64(part) / math.Pow10(len(fraction))
	}
	return n, true
}

// The formats of dates that servers send, besides those of HTTP. Each allows a fraction of a
// second.
var timeForms = [...]string{time.RFC3339, "2006-01-02T15:04:05Z0700", "2006-01-02T15:04:05", "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05"}

// parseTime reads a date, rounded up to a second.
func parseTime(value string) (unix int64, ok bool) {
	if unix, ok := ParseDate(value); ok {
		return unix, true
	}
	if len(value) < len("2006-01-02T15:04:05") || value[4] != '-' {
		return 0, false
	}
	for _, form := range timeForms {
		if t, err := time.Parse(form, value); err == nil && t.Unix() > 0 {
			if t.Nanosecond() > 0 {
				return t.Unix() + 1, true
			}
			return t.Unix(), true
		}
	}
	return 0, false
}

// ReadRetryAfter reads the Retry-After of a response: seconds, which may have a fraction, or a
// date, which is relative to the response's Date and requires one. The result is 0 if the field is
// absent or the date has passed.
func ReadRetryAfter(get func(name string) []string) (time.Duration, error) {
	value, ok, err := single(get, RetryAfter)
	if err != nil || !ok {
		return 0, err
	}
	if n, ok := parseDecimal(value); ok {
		if n > maxLeft {
			return 0, &FieldError{Field: RetryAfter, Value: value, Problem: "is too large: a century is allowed"}
		}
		return seconds(n), nil
	}
	unix, ok := parseTime(value)
	date, err := parseDateField(get)
	switch {
	case !ok:
		return 0, &FieldError{Field: RetryAfter, Value: value, Problem: "is neither a number of seconds nor a date"}
	case err != nil:
		return 0, err
	case date == 0:
		return 0, &FieldError{Field: RetryAfter, Value: value, Problem: "is a date, and the response has no Date to count from"}
	}
	return time.Duration(min(max(unix-date, 0), maxLeft)) * time.Second, nil
}
