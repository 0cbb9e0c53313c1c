package dbtest

import (
	"os/exec"
	"strings"
	"testing"

	"guildhall/internal/base/testutil"
)

// WantPsql fails the test unless psql turns text and variables, pairs of a name and a value, into
// the statement whole.
func WantPsql(t testing.TB, url, text, whole string, variables ...string) {
	t.Helper()
	args := []string{"--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1", "--dbname=" + url}
	for i := 0; i < len(variables); i += 2 {
		args = append(args, "--set="+variables[i]+"="+variables[i+1])
	}
	psql := exec.CommandContext(t.Context(), testutil.Program(t, "psql"), args...)
	psql.Stdin = strings.NewReader("PREPARE whole AS " + text + ";\nSELECT statement FROM pg_prepared_statements;\n")
	var failed strings.Builder
	psql.Stderr = &failed
	out, err := psql.Output()
	if err != nil {
		t.Fatalf("psql takes no\n%s\n%v: %s", text, err, &failed)
	}
	if got, want := strings.Join(strings.Fields(string(out)), " "), strings.Join(strings.Fields("PREPARE whole AS "+whole+";"), " "); got != want {
		t.Errorf("psql makes\n%s\nof what is here\n%s", got, want)
	}
}
