// Package cases is the moderation record of a guild. Notes and warnings can be
// filed through the API; every other type and every change of status is the
// bot's or the dashboard's, except that a case expires on its own.
package cases
