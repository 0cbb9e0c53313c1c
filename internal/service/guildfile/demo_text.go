package guildfile

import "guildhall/gen"

// demoReasons are reasons that moderators give, by type of case.
var demoReasons = map[gen.GuildFileCaseType][]string{
	"note": {
		"Asked about the rules for trading; explained.",
		"Second account of a known member, agreed with the team.",
		"Friendly reminder about spoilers given in chat.",
		"Offered to help with the winter event.",
	},
	"warn": {
		"Spoilers outside the spoiler channel.",
		"Repeated pings of the event team.",
		"Advertising another server in #general.",
		"Insulting another member.",
		"Off-topic after being asked twice to move.",
		"Posted the same picture five times in a row 🤷",
	},
	"timeout": {
		"Heated argument; a break for both sides.",
		"Flooding the chat.",
		"Kept on after a warning.",
		"Voice channel noise.",
	},
	"mute": {
		"Soundboard in the study room.",
		"Shouting in voice.",
		"Slow-mode evasion.",
	},
	"kick": {
		"Name breaks the naming rule and was not changed.",
		"Did not answer the entry question.",
	},
	"ban": {
		"Scam links in direct messages.",
		"Compromised account posting gift links.",
		"Raid account.",
		"Harassment after several warnings.",
	},
}

// demoTicket is a conversation: opener and helper in turn, from the second line on claimed by the
// helper. A line that begins with # is an internal note. The first message has the file, if there
// is one.
type demoTicket struct {
	subject string
	lines   []string
	outcome string
	file    string
}

var demoTickets = []demoTicket{
	{
		"Lost my level role",
		[]string{
			"Hi! I left by accident and when I came back my level 20 role was gone.",
			"Welcome back! One moment, I'll look up your XP.",
			"Thanks :)",
			"Your XP is still there. The role is on again, can you see it?",
			"Yes, perfect. Thank you!",
		},
		"Role given back.",
		"",
	},
	{
		"Report: suspicious link",
		[]string{
			"Someone sent me a link to a free gift in a direct message, is that from you?",
			"No, that is a scam. Please do not open it. Can you send me the user's id?",
			"It's the account with the lighthouse picture, I'll paste the id.",
			"#Same text as the two reports from yesterday, listed in the network.",
			"Here it is. I did not click anything.",
		},
		"Account banned and reported to the network.",
		"",
	},
	{
		"Payout of the quiz night",
		[]string{
			"I was second at the quiz on Friday but have not got my shells yet.",
			"Let me check the list of winners.",
			"It was the one about sea birds.",
			"Found it, the list was missing two names. 200 shells are on their way.",
		},
		"200 shells paid out.",
		"",
	},
	{
		"Appeal of a warning",
		[]string{
			"I got a warning for spoilers, but I used the spoiler tags.",
			"Hello, thanks for writing. I'll look at the message.",
			"It was in #film-talk.",
			"#Message is tagged correctly, the moderator saw the preview only.",
			"No hurry.",
			"You are right, the tags were there. The warning is revoked, sorry about that.",
		},
		"Warning revoked.",
		"",
	},
	{
		"Partnership",
		[]string{
			"We run a small server for board games and would like to be listed as partners.",
			"Nice! How many members do you have, and since when?",
			"About 300, since spring.",
			"Thank you. The team talks about partners on Sundays, you will hear from us.",
		},
		"Passed on to the team meeting.",
		"",
	},
	{
		"Giveaway prize",
		[]string{
			"I won the hoodie, where do I send my size?",
			"Congratulations! Write it here, nobody outside the team can read this.",
			"Medium, please. Thank you so much!",
		},
		"Size noted, prize ordered.",
		"",
	},
	{
		"Bot does not answer",
		[]string{
			"The /rank command says that something went wrong.",
			"Thanks, we know. It should be back within the hour.",
			"Works again!",
		},
		"Solved itself after the update.",
		"rank-error.png",
	},
}

var demoListings = []struct {
	category string
	severity gen.GuildFileNetworkListingSeverity
	trust    int
	reports  int64
}{
	{"spam", "low", 45, 4},
	{"scam", "high", 3, 60},
	{"raid", "critical", 0, 150},
	{"compromised", "medium", 30, 12},
	{"harassment", "high", 10, 20},
	{"nsfw", "medium", 25, 9},
	{"spam", "medium", 25, 30},
	{"other", "low", 60, 2},
}
