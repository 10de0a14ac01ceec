package report

import (
	"bytes"
	"go/format"
	"os"
	"testing"

	"github.com/valyala/quicktemplate/parser"
)

func TestThePageIsCompiledFromItsTemplate(t *testing.T) {
	source, err := os.Open("page.qtpl")
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	var made bytes.Buffer
	if err := parser.ParseNoLineComments(&made, source, "page.qtpl", "report"); err != nil {
		t.Fatal(err)
	}
	want, err := format.Source(made.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if kept, err := os.ReadFile("page.qtpl.go"); err != nil || !bytes.Equal(kept, want) {
		t.Errorf("page.qtpl.go is not what page.qtpl makes (%v): go generate ./internal/replay/report", err)
	}
}
