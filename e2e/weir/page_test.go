package weir

import (
	"regexp"
)

const (
	repository = "../.."
	module     = "github.com/weirlimit/weir"
)

// fence is a block of a page.
var fence = regexp.MustCompile("(?ms)^```([^\n]*)\n(.*?)^```$")
