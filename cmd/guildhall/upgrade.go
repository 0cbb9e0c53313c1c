package main

import (
	"time"

	"guildhall/internal/base/db"
)

// finishAfter is how long after its start a node that migrates takes away what only the
// release before needs. Until then the release before can be started instead.
const finishAfter = time.Hour

// whoMigrates says which of the two ways of an upgrade the node is on. All nodes of a
// database should be on the same way.
func whoMigrates(migrate bool) string {
	if migrate {
		return "this node runs them, as it was started with --migrate"
	}
	return "`guildhall migrate` runs them, before the first node of a release starts and after the last older node has stopped"
}

// finished logs the result of a try to finish the upgrade.
func (n *node) finished(schema db.Schema, err error) {
	switch left := schema.Unfinished(); {
	case err != nil:
		n.log.Warn("the upgrade of the schema could not be finished; it is tried again", "error", err)
	case left != "":
		n.log.Warn(left)
	default:
		n.log.Info("the upgrade of the schema is finished", "version", schema.Version)
	}
}
