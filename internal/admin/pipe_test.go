//go:build unix

package admin_test

import (
	"context"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/admin"
)

// Opening a pipe waits for a writer and ignores signals, so pipes are rejected
// before that.
func TestAPipeInPlaceOfAFileIsRejected(t *testing.T) {
	for name, read := range map[string]func(ctx context.Context, dir string) error{
		"audit.key":   func(ctx context.Context, dir string) error { _, err := admin.OpenAudit(ctx, dir, nil); return err },
		"admin.token": func(_ context.Context, dir string) error { _, err := admin.ReadOperator(dir); return err },
		"admin-tokens": func(_ context.Context, dir string) error {
			_, err := admin.OpenTokens(dir, admin.TokensOptions{}).List()
			return err
		},
		"audit.log": func(ctx context.Context, dir string) error {
			a, err := admin.OpenAudit(ctx, dir, nil)
			if err == nil {
				_, err = a.Last(1)
			}
			return err
		},
	} {
		dir := t.TempDir()
		if err := syscall.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- read(t.Context(), dir) }()
		select {
		case err := <-done:
			if err == nil || !strings.Contains(err.Error(), "a regular file") {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("opening %s blocks", name)
		}
	}
}
