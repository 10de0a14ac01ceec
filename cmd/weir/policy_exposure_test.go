package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestTheExposureOfEveryExampleFitsAScreen(t *testing.T) {
	for _, name := range []string{"", "../../examples/costly.yaml", "../../examples/policies/llm-api.yaml", "../../examples/policies/login.yaml", "../../examples/policies/public-api.yaml"} {
		policy, err := readPolicy(nil, name)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := printExposure(&b, policy.Policy); err != nil {
			t.Fatal(err)
		}
		for line := range strings.SplitSeq(fmt.Sprint(&b), "\n") {
			if n := utf8.RuneCountInString(line); n > 100 {
				t.Errorf("%s: a line of %d characters: %s", name, n, line)
			}
		}
	}
}
