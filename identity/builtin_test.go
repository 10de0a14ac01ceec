package identity

import "testing"

// A request answers each row of the table in the form that the row has: with the name of what is
// read, or without.
func TestEveryBuiltInSourceIsAnsweredInItsForm(t *testing.T) {
	for _, s := range Sources() {
		if find, named := builtIn(s.Name); find == nil || named != (s.Field != "") {
			t.Errorf("%s: answered %t, with a name %t; want true, %t", s.Name, find != nil, named, s.Field != "")
		}
	}
	if find, _ := builtIn("nothing"); find != nil {
		t.Error("a source that is not in the table is answered")
	}
}
