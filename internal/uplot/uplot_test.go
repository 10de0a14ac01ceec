package uplot

import (
	"crypto/sha256"
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestTheChartLibraryIsAsPublished(t *testing.T) {
	source, err := os.ReadFile("SOURCE.md")
	if err != nil {
		t.Fatal(err)
	}
	licence, err := os.ReadFile("LICENSE")
	if err != nil || !strings.Contains(string(licence), "MIT License") {
		t.Errorf("its licence is not beside it: %v", err)
	}
	for name, text := range map[string]string{"uPlot.iife.min.js": Script, "uPlot.min.css": Style} {
		if sum := fmt.Sprintf("%x", sha256.Sum256([]byte(text))); !strings.Contains(string(source), "| `"+name+"` | `"+sum+"` |") {
			t.Errorf("%s has the digest %s, which SOURCE.md does not name", name, sum)
		}
	}
	if !strings.Contains(Script, "(v1.6.32)") || !strings.Contains(string(source), "uPlot 1.6.32") {
		t.Error("SOURCE.md names another version than the file does")
	}
}
