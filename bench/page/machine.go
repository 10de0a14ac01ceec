package page

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// Machine describes in one line the machine that figures are measured on, and its load just before.
func Machine() string {
	processor := find("/proc/cpuinfo", `model name\s*: (.*)`)
	if strings.Contains(find("/proc/cpuinfo", `flags\s*: (.*)`), "hypervisor") {
		processor += ", a virtual machine"
	}
	// runtime.NumCPU only counts those that this process may use
	cores := strings.Count(content("/proc/cpuinfo"), "\nprocessor\t") + 1
	return fmt.Sprintf("%s, %d cores; Linux %s; %s; %s; load before the run %s", processor, cores,
		find("/proc/version", `Linux version (\S+)`), runtime.Version(), time.Now().Format(time.DateOnly), find("/proc/loadavg", `^(\S+)`))
}

// find returns the match of a pattern's group in a file, or "".
func find(path, pattern string) string {
	if m := regexp.MustCompile("(?m)" + pattern).FindStringSubmatch(content(path)); m != nil {
		return m[1]
	}
	return ""
}

func content(path string) string {
	b, _ := os.ReadFile(path) // other systems than Linux have no such file
	return string(b)
}
