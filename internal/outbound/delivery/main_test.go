package delivery

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

// workerVariable is the environment variable that turns the test binary into a worker process on
// the named database, until the process is killed.
const workerVariable = "GUILDHALL_TEST_WEBHOOK_WORKER"

func TestMain(m *testing.M) {
	if url := os.Getenv(workerVariable); url != "" {
		fmt.Fprintln(os.Stderr, workUntilKilled(url))
		os.Exit(1)
	}
	flag.Parse()
	if seed := flag.Lookup("rapid.seed"); os.Getenv("CI") != "" && seed.Value.String() == "0" {
		if err := seed.Value.Set("1"); err != nil { // CI tests the same sequences each time
			panic(err)
		}
	}
	os.Exit(m.Run())
}
