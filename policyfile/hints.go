package policyfile

import (
	"net/netip"
	"regexp"
	"strings"

	"github.com/weirlimit/weir"
)

// What people write for a window elsewhere, and what it is called here.
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

// windowHint says what to do about a window that cannot be read; empty where the error says it all.
func windowHint(s string) string {
	if m := perSlash.FindStringSubmatch(s); m != nil {
		unit := m[2]
		if other, ok := unitsOther[unit]; ok {
			unit = other
		}
		return "such as: " + m[1] + " per " + unit + " by ip"
	}
	if number := grouped.FindString(s); number != "" {
		return "write the number in digits alone: " + strings.NewReplacer("_", "", ".", "", ",", "", "'", "", " ", "").Replace(number)
	}
	if m := thousands.FindStringSubmatch(s); m != nil {
		return "write the number in digits alone: " + m[1] + "000"
	}
	head, key, by := strings.Cut(s, " by ")
	words := strings.Fields(head)
	if len(words) < 3 || words[1] != "per" {
		return ""
	}
	unit := words[len(words)-1]
	if other, ok := unitsOther[strings.ToLower(unit)]; ok {
		return "write: per " + other
	}
	if closestUnit := closest(unit, unitWords); closestUnit != "" && closestUnit != unit {
		return "did you mean \"" + closestUnit + "\"?"
	}
	if !by {
		if _, err := weir.ParseWindow(s + " by ip"); err == nil {
			return "say what is counted, such as: " + s + " by ip"
		}
	}
	if strings.Contains(key, ",") || strings.Contains(key, "&") || strings.Contains(key, " and ") {
		return "join key sources with \"+\", such as: by ip+agent"
	}
	if strings.Contains(key, "|") {
		return "join alternatives with \"or\", such as: by session or ip"
	}
	return ""
}

// routeHint says what to do about a route that cannot be read; empty where the error says it all.
func routeHint(s string) string {
	words := strings.Fields(s)
	if len(words) == 0 {
		return ""
	}
	path := words[len(words)-1]
	if _, rest, ok := strings.Cut(path, "://"); ok {
		_, rest, _ = strings.Cut(rest, "/")
		path = "/" + rest
	}
	path, _, _ = strings.Cut(path, "?")
	if before, _, ok := strings.Cut(path, "*"); ok {
		path = before + "*"
	}
	if path != "" && path[0] != '/' {
		path = "/" + path
	}
	better := path
	if len(words) == 2 && words[0] != "*" && !strings.EqualFold(words[0], "any") {
		better = strings.ToUpper(words[0]) + " " + path
	}
	if _, err := weir.ParseRoute(better); err == nil {
		return "such as: " + better
	}
	return ""
}

// failureHint says which mode is likely to be meant.
func failureHint(s string) string {
	switch strings.ToLower(s) {
	case "open", "fail-open", "fail_open", "ignore", "pass":
		return "allow admits every request while the store does not answer"
	case "closed", "close", "fail-closed", "fail_closed", "reject", "refuse", "block":
		return "deny answers 503 while the store does not answer"
	}
	return didYouMean(s, []string{"local", "allow", "deny"})
}

// modeHint says which mode is likely to be meant.
func modeHint(s string) string {
	switch strings.ToLower(s) {
	case "on", "active", "live", "block", "reject", "refuse", "deny":
		return "enforce refuses what does not fit"
	case "off", "dry-run", "dry_run", "dryrun", "report", "report-only", "log", "monitor", "observe", "test", "watch":
		return "shadow counts and reports, and refuses nothing"
	}
	return didYouMean(s, []string{"enforce", "shadow"})
}

// whoHint says what to do about callers that cannot be read; empty where the error says it all.
func whoHint(s string) string {
	words := strings.Fields(s)
	if len(words) == 2 && (words[0] == "ip" || words[0] == "cidr") {
		if _, err := weir.ParseWho(words[1]); err == nil {
			return "write it alone: " + words[1]
		}
	}
	if len(words) == 2 && (words[0] == "agent" || words[0] == "session") {
		return "name an address or an API token: an agent is what the caller chooses, and sessions come and go"
	}
	if network, err := netip.ParsePrefix(s); err == nil && network.Masked() != network {
		return "write " + network.Masked().String()
	}
	if len(words) == 1 && !strings.ContainsAny(s, ".:/") && !strings.HasPrefix(s, "wpt_") {
		if _, err := weir.ParseWho("token " + s); err == nil {
			return "an API token is named: token " + s
		}
	}
	return ""
}

// overrideHint says what to do about an override that cannot be read; empty where the error says it all.
func overrideHint(s string) string {
	if head, who, ok := strings.Cut(s, " for "); ok {
		if _, err := weir.ParseWho(who); err != nil {
			return whoHint(strings.TrimSpace(who))
		}
		return windowHint(head)
	}
	if head, _, ok := strings.Cut(s, " by "); ok {
		if _, err := weir.ParseWindow(s); err == nil {
			return "say for whom, not by what: " + head + " for token 3fk2mq7a4c"
		}
	}
	return ""
}
