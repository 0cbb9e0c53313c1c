package dbtest

import (
	"cmp"
	"flag"
	"os"

	_ "pgregory.net/rapid" // its flag
)

// rounds is how many rounds the property tests of a package with a database make. A round over a
// database costs a hundred times as much as one without. make race makes more, and so does the flag
// -rapid.checks.
const rounds = "30"

func init() {
	if err := flag.Set("rapid.checks", cmp.Or(os.Getenv("GUILDHALL_TEST_ROUNDS"), rounds)); err != nil {
		panic(err)
	}
}
