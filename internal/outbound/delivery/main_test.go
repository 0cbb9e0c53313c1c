package delivery

import (
	"fmt"
	"os"
	"testing"
)

// workerVariable names, in the environment of the test binary, the database that
// it is to work on as a worker process, until it is killed.
const workerVariable = "GUILDHALL_TEST_WEBHOOK_WORKER"

func TestMain(m *testing.M) {
	if url := os.Getenv(workerVariable); url != "" {
		fmt.Fprintln(os.Stderr, workUntilKilled(url))
		os.Exit(1)
	}
	os.Exit(m.Run())
}
