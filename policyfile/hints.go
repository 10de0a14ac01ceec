package policyfile

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
)

// The patterns and words with which other products write a window, and what they are called here.
var (
	perSlash   = regexp.MustCompile(`^([0-9]+) ?(?:r|req|requests)? ?/ ?([a-z]+)`)
	grouped    = regexp.MustCompile(`^[0-9]+([_.,' ][0-9]{3})+\b`)
	thousands  = regexp.MustCompile(`^([0-9]+)[kK]\b`)
	unitWords  = []string{"second", "seconds", "minute", "minutes", "hour", "hours", "day", "days"}
	unitsOther = map[string]string{
		"s": "second", "sec": "second", "secs": "second", "m": "minute", "min": "minute", "mins": "minute",
		"h": "hour", "hr": "hour", "hrs": "hour", "d": "day",
		"week": "7 days", "weeks": "7 days", "w": "7 days", "fortnight": "14 days", "month": "30 days", "months": "30 days",
	}
)

// windowHint returns advice on a window that cannot be parsed, or "" if the error is enough.
func windowHint(s string) string {
	if m := perSlash.FindStringSubmatch(s); m != nil {
		unit := m[2]
		if other, ok := unitsOther[unit]; ok {
			unit = other
		}
		return "such as: " + m[1] + " per " + unit + " by ip"
	}
	if number := grouped.FindString(s); number != "" {
		return "write the number in digits only: " + strings.NewReplacer("_", "", ".", "", ",", "", "'", "", " ", "").Replace(number)
	}
	if m := thousands.FindStringSubmatch(s); m != nil {
		return "write the number in digits only: " + m[1] + "000"
	}
	head, key, by := strings.Cut(s, " by ")
	words := strings.Fields(head)
	if len(words) > 1 && (words[1] == "requests" || words[1] == "request") {
		words = slices.Delete(words, 1, 2)
	}
	if len(words) < 3 || words[1] != "per" {
		return ""
	}
	if words[2] == calendarWord {
		return calendarHint(words)
	}
	unit := words[len(words)-1]
	if other, ok := unitsOther[strings.ToLower(unit)]; ok {
		if named := strings.TrimSuffix(strings.ToLower(unit), "s"); named == "week" || named == "month" {
			return "write: per " + other + ", or for those of a calendar: per calendar " + named
		}
		return "write: per " + other
	}
	if closestUnit := closest(unit, unitWords); closestUnit != "" && closestUnit != unit {
		return "did you mean \"" + closestUnit + "\"?"
	}
	if !by {
		if _, err := weir.ParseWindow(s + " by ip"); err == nil {
			return "add the key to count by, such as: " + s + " by ip"
		}
	}
	if strings.Contains(key, ",") || strings.Contains(key, "&") || strings.Contains(key, " and ") {
		return "join key sources with \"+\", such as: by ip+agent"
	}
	if strings.Contains(key, "|") {
		return "join alternatives with \"or\", such as: by session or ip"
	}
	if m := jwtLike.FindStringSubmatch(key); m != nil && keyParses("claim:"+m[1]) {
		return "to count by a claim of a verified JWT, write: claim:" + m[1]
	}
	if m := fieldLike.FindString(key); m != "" {
		if isAPIKey(m) {
			return apiKeyHint
		}
		if part := identity.Header + ":" + m; keyParses(part) {
			return "to count by an HTTP field, write: " + part
		}
	}
	if lower := strings.ToLower(key); by && !strings.Contains(key, ":") && lower != key && keyParses(lower) {
		return "write: by " + lower
	}
	return ""
}

// otherUnitHint returns the limit of a plan or an override with the word "requests", or without it,
// if only then it changes one of the windows. Otherwise it returns "".
func otherUnitHint(s string, windows []weir.Window) string {
	if r, err := weir.ParseRate(s); err == nil {
		other := r
		other.Requests = !r.Requests
		if changesAny(other.Changes, windows) && !changesAny(r.Changes, windows) {
			return "write: " + other.String()
		}
	}
	if o, err := weir.ParseOverride(s); err == nil {
		other := o
		other.Requests = !o.Requests
		if changesAny(other.Changes, windows) && !changesAny(o.Changes, windows) {
			return "write: " + other.String()
		}
	}
	return ""
}

func changesAny(changes func(*weir.Window) bool, windows []weir.Window) bool {
	return slices.ContainsFunc(windows, func(w weir.Window) bool { return changes(&w) })
}

// fieldLike matches a word of a key that is spelled like the name of an HTTP field, or of an API
// key.
var fieldLike = regexp.MustCompile(`\b(?:[A-Z][A-Za-z0-9]*(?:-[A-Za-z0-9]+)+|[A-Za-z]+_[Kk][Ee][Yy])(?:$|\b)`)

// jwtLike matches a claim of a JWT as other products write it.
var jwtLike = regexp.MustCompile(`(?i)\bjwt:([^\s+]+)`)

// apiKeyHint is the hint for a source that is named like an API key.
const apiKeyHint = "token counts by a key that is verified ('weir serve --token-file' takes your own), header:X-Api-Key by any value of that field"

// isAPIKey reports whether a source is named like an API key.
func isAPIKey(s string) bool {
	switch plainWord(s) {
	case "apikey", "xapikey", "key", "apitoken":
		return true
	}
	return false
}

// keyParses reports whether s is a well-formed key.
func keyParses(s string) bool {
	_, err := weir.ParseKey(s)
	return err == nil
}

const calendarWord = "calendar"

// calendarHint returns the words of a calendar window in their order, if that is all that is wrong
// with it. Other errors have the advice.
func calendarHint(words []string) string {
	in, from := slices.Index(words, "in"), slices.Index(words, "from")
	if in != from+3 || from < 0 || in != len(words)-2 {
		return ""
	}
	ordered := slices.Concat(words[:from], words[in:], words[from:in])
	if _, err := weir.ParseWindow(strings.Join(ordered, " ") + " by ip"); err != nil {
		return ""
	}
	return "the zone comes before the day: " + strings.Join(ordered, " ")
}

// sourceHint returns which key source was probably meant, or how to count by an HTTP field.
func sourceHint(name string, all []weir.Source) string {
	var plain []string
	field := ""
	for _, s := range all {
		if s.Name == identity.Header {
			field = s.Example()
		}
		if s.Name == name && s.Field != "" {
			return "name what it reads, such as: " + s.Example()
		}
		plain = append(plain, s.Name)
	}
	if base, rest := weir.SplitSource(name); rest != "" && slices.Contains(plain, base) {
		return fmt.Sprintf("%s takes no field: write %s", base, base)
	}
	switch base, rest := weir.SplitSource(name); {
	case isAPIKey(base) && slices.Contains(plain, identity.Token):
		return apiKeyHint
	case isCertificate(base) && slices.Contains(plain, identity.Cert):
		return "cert counts by a verified client certificate"
	case strings.EqualFold(base, "jwt") && slices.Contains(plain, identity.Session):
		claim := "claim:" + cmp.Or(rest, "sub")
		if !keyParses(claim) {
			claim = "claim:sub"
		}
		return "session counts by a verified JWT, claim:NAME by one of its claims, such as: " + claim
	}
	if hint := didYouMean(name, plain); hint != "" || field == "" {
		return hint
	}
	return "to count by an HTTP field, write for example: " + field
}

// isCertificate reports whether s is another word for a client certificate.
func isCertificate(s string) bool {
	switch strings.ToLower(s) {
	case "mtls", "tls", "x509", "certificate", "client-cert", "client_cert", "client-certificate":
		return true
	}
	return false
}

// failureHint returns which on_store_failure was probably meant.
func failureHint(s string) string {
	switch strings.ToLower(strings.TrimPrefix(s, "pocket or ")) {
	case "open", "fail-open", "fail_open", "ignore", "pass":
		return "allow admits every request while the store does not answer"
	case "closed", "close", "fail-closed", "fail_closed", "reject", "refuse", "block":
		return "deny answers 503 while the store does not answer"
	}
	return didYouMean(s, failureModes())
}

// failureModes returns the values of on_store_failure.
func failureModes() (all []string) {
	for _, m := range weir.FailureModes() {
		all = append(all, m.String())
	}
	return append(all, "pocket")
}

// requiresHint returns which credential was probably meant.
func requiresHint(s string) string {
	switch strings.ToLower(s) {
	case "", "none", "no", "false", "off", "anyone", "optional", identity.IP, identity.Everyone:
		return "leave it out to let every caller in"
	case "jwt", "bearer", "user", "visitor":
		return "session is a verified JWT"
	case "api-token", "api_token", "apikey", "api-key", "api_key", "key":
		return "token is a verified API token"
	}
	if isCertificate(s) {
		return "cert is a verified client certificate"
	}
	return didYouMean(s, weir.Credentials())
}

// chosenHint returns what was probably meant by chosen.
func chosenHint(s string) string {
	switch strings.ToLower(s) {
	case "true", "on", "y", "1", "yes":
		return "write: chosen: yes"
	case "", "false", "off", "no", "n", "0":
		return "leave it out to reject windows that count by what a caller chooses"
	}
	return "chosen: yes allows windows that count by what a caller chooses; leave it out otherwise"
}

// modeHint returns which mode was probably meant.
func modeHint(s string) string {
	switch strings.ToLower(s) {
	case "on", "active", "live", "block", "reject", "refuse", "deny":
		return "enforce refuses requests over the limit"
	case "off", "dry-run", "dry_run", "dryrun", "report", "report-only", "log", "monitor", "observe", "test", "watch":
		return "shadow counts and reports, but refuses nothing"
	}
	return didYouMean(s, []string{"enforce", "shadow"})
}

// alignHint returns which align was probably meant.
func alignHint(s string) string {
	switch strings.ToLower(s) {
	case "true", "yes", "on", "utc", "wall", "wall-clock", "epoch", "fixed", "boundary":
		return "clock begins a minute at second 0, an hour at minute 0"
	case "false", "no", "off", "none", "first", "sliding", "client":
		return "request begins a window with its first request"
	case "day", "week", "month", "calendar":
		return "write a calendar window: 1000 per calendar month by ip"
	}
	return didYouMean(s, []string{"request", "clock"})
}

// whoHint returns advice on a caller that cannot be parsed, or "" if the error is enough.
func whoHint(s string) string {
	words := strings.Fields(s)
	if len(words) == 2 && (words[0] == "ip" || words[0] == "cidr") {
		if _, err := weir.ParseWho(words[1]); err == nil {
			return "write the address without a prefix word: " + words[1]
		}
	}
	if len(words) == 2 && words[0] == identity.Cert {
		return "name an address or an API token; 'weir key grant --cert' raises the limit of one certificate for a time"
	}
	if len(words) == 2 && words[0] == identity.Session {
		return "name an address or an API token: sessions are short-lived"
	}
	if source, ok := weir.FindSource(weir.Sources(), words[0]); ok && source.Kind == weir.Chosen && len(words) == 2 {
		return "name an address or an API token: a caller chooses its " + source.Name
	}
	if network, err := netip.ParsePrefix(s); err == nil && network.Masked() != network {
		return "write " + network.Masked().String()
	}
	if len(words) == 1 && !strings.ContainsAny(s, ".:/") && !strings.HasPrefix(s, "wpt_") {
		if _, err := weir.ParseWho("token " + s); err == nil {
			return "write an API token as: token " + s
		}
	}
	if fileLike.MatchString(s) {
		return fmt.Sprintf("to name a file of networks, write: %q", "@"+s)
	}
	return ""
}

// fileLike matches the name of a file of networks without its "@".
var fileLike = regexp.MustCompile(`^[A-Za-z0-9._/-]*[A-Za-z][A-Za-z0-9_-]*\.(?:txt|list|lst|conf|csv|netset)$`)

// overrideHint returns advice on an override that cannot be parsed, or "" if the error is enough.
func overrideHint(s string) string {
	if head, who, ok := strings.Cut(s, " for "); ok {
		if _, err := weir.ParseWho(who); err != nil {
			return whoHint(strings.TrimSpace(who))
		}
		return windowHint(head)
	}
	if head, _, ok := strings.Cut(s, " by "); ok {
		if _, err := weir.ParseWindow(s); err == nil {
			return "an override names a caller, not a key: " + head + " for token 3fk2mq7a4c"
		}
	}
	return ""
}
