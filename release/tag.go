package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// checkTag reports what the source says of another version than the one that is released. A commit
// without a tag and a release candidate may come before that is written.
func checkTag(source string, v version) error {
	if v.Prerelease != "" {
		return nil
	}
	number := regexp.QuoteMeta(v.Number)
	for _, place := range []struct{ file, value, want string }{
		// The first section, so none is unreleased.
		{"CHANGELOG.md", `(?m)^## (.*)$`, number + ` \(\d{4}-\d{2}-\d{2}\)`},
		{"charts/weir/Chart.yaml", `(?m)^version: (.*)$`, number},
		{"charts/weir/Chart.yaml", `(?m)^appVersion: (.*)$`, number},
	} {
		text, err := os.ReadFile(filepath.Join(source, place.file))
		if err != nil {
			return err
		}
		found := regexp.MustCompile(place.value).FindSubmatch(text)
		if found == nil {
			return fmt.Errorf("v%s is tagged, and %s has no version", v, place.file)
		}
		if !regexp.MustCompile("^" + place.want + "$").Match(found[1]) {
			return fmt.Errorf("v%s is tagged, and %s has %q first: expected %s", v, place.file, found[1], place.want)
		}
	}
	return nil
}
