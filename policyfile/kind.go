package policyfile

import (
	"fmt"
	"strings"
)

// A kind of file is what the messages about the YAML of a file call it.
type kind struct {
	name    string // "policy" for "a policy file"
	holds   string // what a file of it does, after its name
	start   string // the hint for a file that is empty or no text
	smaller string // the hint for a file that is too large
	tooMany string // what is wrong with a file of too many fields and items
	shape   string // the hint for a file that is nested too deeply
	alias   string // the hint for an alias, which may be meant as a star
	syntax  func(message string) string
}

var aPolicy = kind{
	name:    "policy",
	holds:   "policy declares limiters",
	start:   "'weir policy show' prints a policy to start from",
	smaller: "split the policy, or generate fewer limiters",
	tooMany: fmt.Sprintf("the file has too many fields and items: at most %d limiters are allowed", MaxLimiters),
	shape:   "a policy is a list of limiters, each with a list of routes and a list of windows",
	alias:   "write the value in full; a route is /path, or /path* for every path that begins with /path, so /* is every path",
	syntax:  syntaxHint,
}

var aConfiguration = kind{
	name:    "configuration",
	holds:   "configuration sets at least one value",
	start:   "write a setting, such as: listen: 127.0.0.1:8080; without a file all have their defaults",
	smaller: "a configuration has one line for each setting; put networks and keys in files of their own",
	tooMany: "the file has too many fields and items",
	shape:   "a setting is written \"name: value\", a list [one, two]",
	alias:   "write the value in full; put a text that begins with a star in quotes: \"*\"",
	syntax:  settingHint,
}

// settingHint returns advice on the usual cause of a YAML error, in terms of a configuration.
func settingHint(message string) string {
	switch {
	case strings.Contains(message, "could not find end character"):
		return "close the quotes on the same line"
	case strings.Contains(message, "not allowed in this context"), strings.Contains(message, "non-map value"):
		return "begin all settings in the first column, and all items of a list in one"
	case strings.Contains(message, "map key"), strings.Contains(message, "key name"):
		return "a setting is written \"name: value\", with a space after the colon"
	}
	return "put a text with brackets, braces, commas or a colon and a space in quotes: \"[::1]:8080\""
}
