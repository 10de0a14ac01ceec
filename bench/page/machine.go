package page

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// Machine says in one line what figures are taken on, and what it was doing just before.
func Machine() string {
	processor := find("/proc/cpuinfo", `model name\s*: (.*)`)
	if strings.Contains(find("/proc/cpuinfo", `flags\s*: (.*)`), "hypervisor") {
		processor += ", a virtual machine"
	}
	cores := strings.Count(content("/proc/cpuinfo"), "\nprocessor\t") + 1 // runtime.NumCPU counts those that this process may use
	return fmt.Sprintf("%s, %d cores; Linux %s; %s; %s; load before the run %s", processor, cores,
		find("/proc/version", `Linux version (\S+)`), runtime.Version(), time.Now().Format(time.DateOnly), find("/proc/loadavg", `^(\S+)`))
}

// find returns what a pattern's group matches in a file, empty where there is none.
func find(path, pattern string) string {
	if m := regexp.MustCompile("(?m)" + pattern).FindStringSubmatch(content(path)); m != nil {
		return m[1]
	}
	return ""
}

func content(path string) string {
	b, _ := os.ReadFile(path) // elsewhere than on Linux there is nothing to say
	return string(b)
}
