// Package levelling keeps the members' XP and tells their level from it. The
// level follows from the XP by one published curve and is nowhere stored. What
// a level brings (roles, announcements) is the bot's business, not this one's.
package levelling
