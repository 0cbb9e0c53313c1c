package levelling_test

import (
	"fmt"

	"guildhall/internal/service/levelling"
)

func ExampleLevel() {
	for _, xp := range []int64{0, 99, 100, 254, 255, 1150, 4675, 23850} {
		p := levelling.ProgressOf(xp)
		fmt.Printf("%5d XP: level %2d, %d of %d (%d%%)\n", xp, levelling.Level(xp), p.Current, p.Required, p.Percent)
	}
	// Output:
	//     0 XP: level  0, 0 of 100 (0%)
	//    99 XP: level  0, 99 of 100 (99%)
	//   100 XP: level  1, 0 of 155 (0%)
	//   254 XP: level  1, 154 of 155 (99%)
	//   255 XP: level  2, 0 of 220 (0%)
	//  1150 XP: level  5, 0 of 475 (0%)
	//  4675 XP: level 10, 0 of 1100 (0%)
	// 23850 XP: level 20, 0 of 3100 (0%)
}
