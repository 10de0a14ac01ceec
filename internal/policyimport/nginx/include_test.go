package nginx_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/policyimport/nginx"
)

func TestAnIncludedFileIsReadInItsPlace(t *testing.T) {
	result, err := nginx.Import(filepath.Dir(write(t, "nginx.conf", "http {\n"+zones+"include sites/*.conf;\n}",
		"sites/a.conf", "server {\n server_name a.example.com;\n include limit.inc;\n}", "limit.inc", "\n\nlimit_req zone=a burst=1;")))
	if err != nil {
		t.Fatal(err)
	}
	if got := shape(result.Policy); got != "[a.example.com/* /*] [10 per second by ip]" {
		t.Error(got)
	}
	if notes := fmt.Sprint(result.Notes); !strings.Contains(notes, "limit.inc:3: limit_req zone=a: nginx delays requests of a burst") {
		t.Errorf("the notes are %s", notes)
	}
}

func TestAConfigurationThatCannotBeReadIsAnError(t *testing.T) {
	for text, want := range map[string]string{
		"http {":                      "nginx.conf:1",
		"http { include gone.conf; }": "gone.conf",
		"http {\n}\n}":                `nginx.conf:3: unexpected "}"`,
		"\ninclude nginx.conf;":       "/nginx.conf, which includes this file",
	} {
		_, err := nginx.Import(write(t, "nginx.conf", text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", text, err, want)
		} else if strings.Count(err.Error(), "nginx.conf") > 1 && !strings.Contains(err.Error(), "this include leads to") {
			t.Errorf("%s: the error names the file twice: %v", text, err)
		}
	}
	main := write(t, "nginx.conf", "http {\ninclude sites/*.conf; }", "sites/a.conf", "include limit.inc;", "limit.inc", "\n\ninclude nginx.conf;")
	if _, err := nginx.Import(main); err == nil || !strings.HasSuffix(err.Error(), "limit.inc:3: this include leads to "+main+", which includes this file") {
		t.Errorf("a cycle of three files: %v", err)
	}
	files := []string{"nginx.conf", "include 0.inc;", "40.inc", ""}
	for i := range 40 {
		files = append(files, fmt.Sprintf("%d.inc", i), strings.Repeat(fmt.Sprintf("include %d.inc;\n", i+1), 2))
	}
	main = write(t, files...)
	if _, err := nginx.Import(main); err == nil || !strings.Contains(err.Error(), "inc:1: the configuration has more than 1000000 directives") {
		t.Errorf("40 files that each include the next one twice: %v", err)
	}
	if _, err := nginx.Import(t.TempDir()); err == nil {
		t.Error("a directory without nginx.conf is no error")
	}
}
