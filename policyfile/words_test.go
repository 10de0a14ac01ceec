package policyfile_test

import (
	"slices"
	"strings"
	"testing"
)

// A message that nothing says is a warning at its place; one that replaces a built-in text is said.
func TestAMessageThatIsNotUsedIsAWarning(t *testing.T) {
	f, err := reader.Parse("policy.yaml", []byte(`limiters:
  - {name: api, routes: [/*], windows: [1 per minute by ip], message: one}
messages:
  one: {en: One.}
  two: {en: Two.}
  three: {en: Three.}
  widget: {en: Replaced.}
answers:
  unauthenticated: {credentials: {token: three}}
`))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range f.Warnings {
		got = append(got, w.String())
	}
	if want := []string{`policy.yaml:5:8: message "two" is used by no limiter and no answer`}; !slices.Equal(got, want) {
		t.Errorf("the warnings are %q, want %q", got, want)
	}
}

// A text that replaces a built-in one is for refusals, which have no reason.
func TestABuiltInTextIsReplacedForRefusalsAlone(t *testing.T) {
	_, err := reader.Parse("policy.yaml", []byte(`limiters:
  - {name: api, routes: [/*], windows: [1 per minute by ip]}
messages:
  need-key: {en: "A key is needed ({reason})."}
  widget: {en: "Wait {retry_after} s.", de: "Nein ({reason})."}
answers:
  unauthenticated: {message: need-key}
`))
	const want = `policy.yaml:5:45: message "widget" is for refused requests, and {reason} has a value only in an answer to a request that is unauthenticated`
	if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "need-key\"") {
		t.Errorf("%v, want %s", err, want)
	}
}

// The order in which maps are read has no effect on what is reported.
func TestProblemsOfWordsHaveOneOrder(t *testing.T) {
	first := problemsOf(t, "testdata/bad/words.yaml")
	for range 20 {
		if again := problemsOf(t, "testdata/bad/words.yaml"); again != first {
			t.Fatalf("first:\n%s\nthen:\n%s", first, again)
		}
	}
}
