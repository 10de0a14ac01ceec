package clients

import "testing"

func TestTheClientForJavaScriptPassesItsTests(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it waits for windows")
	}
	command(t, "../../clients/js", "node", "--test", "--test-timeout=170000")
}

func TestTheTypesOfTheClientForJavaScriptAreRight(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the compiler takes seconds")
	}
	command(t, "../../clients/js", "tsc", "-p", ".")
}
