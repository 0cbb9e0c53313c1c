package leaderboard

// Texts are the statements of the board.
func (b Board) Texts() map[string]string {
	return map[string]string{
		"first": b.first, "deep": b.deep, "rank": b.rank, "draft": b.draft, "count": b.count, "fold": b.fold, "big": b.big, "grown": b.grown,
		"present": b.present.page, "present rank": b.present.rank,
		"hop": hopMoves, "read moves": readMoves, "requests": readRequests,
	}
}

// Busy reports whether the next round follows sooner than usual.
func (k *Maintainer) Busy() bool { return k.busy }
