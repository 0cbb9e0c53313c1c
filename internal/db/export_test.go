package db

// OlderPrograms is for the tests that need a database of dbtest.
var (
	OlderPrograms = olderPrograms
	MigrationPool = migrationPool
)
