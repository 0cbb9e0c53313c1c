package api_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"guildhall/internal/base/testutil"
	"guildhall/internal/server/api/apitest"
)

// The reference page shows every operation in a real browser that can connect only to this server.
// GUILDHALL_TEST_CHROMIUM names the browser. If GUILDHALL_TEST_ARTIFACTS names a directory, a
// screenshot is saved there.
func TestReferenceInBrowser(t *testing.T) {
	t.Parallel()
	browser, err := testutil.Chromium()
	if err != nil {
		testutil.Without(t, "chromium", err.Error())
	}
	api := apitest.New(t)
	picture := filepath.Join(t.TempDir(), "reference.png")
	if dir := os.Getenv("GUILDHALL_TEST_ARTIFACTS"); dir != "" {
		picture = filepath.Join(dir, "reference.png")
	}
	url := strings.TrimSuffix(api.URL, "/api/v1") + "/docs"
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	run := func(last ...string) string {
		t.Helper()
		args := append([]string{
			"--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
			// The server's certificate is self-signed; all other hosts are unreachable.
			"--ignore-certificate-errors", "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
			"--user-data-dir=" + t.TempDir(), "--window-size=1280,1600",
			"--virtual-time-budget=20000", "--timeout=60000",
		}, append(last, url)...)
		cmd := exec.CommandContext(ctx, browser, args...)
		var complaints strings.Builder
		cmd.Stderr = &complaints
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s", browser, err, complaints.String())
		}
		return string(out)
	}
	page := run("--dump-dom")
	each(t, func(t *testing.T, op apitest.Operation) {
		if !strings.Contains(page, `id="operations-`+op.Spec.Tags[0]+"-"+op.ID+`"`) {
			t.Error("the page does not show this operation")
		}
	})
	run("--hide-scrollbars", "--screenshot="+picture)
	if info, err := os.Stat(picture); err != nil || info.Size() < 20_000 {
		t.Errorf("the picture of the page is missing or empty: %v", err)
	}
}
