package webhooks

// WorkerVariable names, in the environment of the test binary, the database that
// it is to work on as a worker process, until it is killed.
const WorkerVariable = "GUILDHALL_TEST_WEBHOOK_WORKER"

// WorkUntilKilled is such a process.
var WorkUntilKilled = workUntilKilled
