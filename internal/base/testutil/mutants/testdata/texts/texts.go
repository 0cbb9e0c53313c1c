// Package texts has a statement with one condition, for a test of the tool.
package texts

// Statement is the statement.
const Statement = `SELECT x WHERE a = 1`
