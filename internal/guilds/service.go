// Package guilds shows what the service knows about a guild and how the guild
// has set it up. Both are changed elsewhere, by the bot and the dashboard.
package guilds
