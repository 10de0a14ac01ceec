package weir

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/weirlimit/weir/e2e/nginxtest"
)

// limitedByNginx is an operator's own nginx, whose limits are imported.
const limitedByNginx = `
limit_req_zone $binary_remote_addr zone=all:1m rate=1r/m;
limit_req_zone $binary_remote_addr zone=login:1m rate=1r/m;
server {
	listen LISTEN;
	limit_req zone=all burst=9 nodelay;
	limit_req_status 429;
	location / { alias /dev/null; }
	location /login { limit_req zone=login burst=2 nodelay; alias /dev/null; }
	location = /login/exact { limit_req zone=all burst=9 nodelay; limit_req zone=login burst=2 nodelay; alias /dev/null; }
}`

// The imported policy refuses the same requests of a burst as nginx.
func TestAnImportedPolicyRefusesWhatNginxRefuses(t *testing.T) {
	front := nginxtest.Start(t, limitedByNginx)
	backend := nginxtest.Start(t, "server { listen LISTEN; location / { alias /dev/null; } }")
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config, policy := filepath.Join(dir, "nginx.conf"), filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(config, []byte("http {"+limitedByNginx+"\n}"), 0o600); err != nil {
		t.Fatal(err)
	}
	imported, err := exec.CommandContext(t.Context(), path, "policy", "import", "nginx", config).Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(policy, imported, 0o600); err != nil {
		t.Fatal(err)
	}
	s := serveWeir(t, "--policy", policy, "--upstream", "http://"+backend.Addr)
	for _, target := range []string{"/login", "/other"} {
		for n := 1; n <= 12; n++ {
			theirs, ours := curl(t, "http://"+front.Addr+target), curl(t, s.url+target)
			if refused := theirs.status == 429; refused != (ours.status == 429) {
				t.Errorf("request %d of %s: nginx answers %d, and the imported policy %d\n%s", n, target, theirs.status, ours.status, imported)
			}
		}
	}
}
