package dashboard

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A plot is a chart of stacked bars over time. The drawing contains no text, so that it can be
// stretched; the numbers are beside the drawing and in a table.
type plot struct {
	Label      string // description for people who cannot see the drawing
	Bars       []bars // from bottom to top
	Width      int    // width of the drawing, one unit for each bar
	Top        int64  // number at the upper edge
	From, To   string
	Total      int64
	Rows       []plotRow
	Names      []string // names of the columns
	Marks      []mark   // text of each bar, in the order of time
	RowHeading string
}

// bars are the bars of one series, as an SVG path.
type bars struct {
	Class string
	Name  string
	Total int64
	Path  string
}

// mark is the tooltip of a bar of a chart.
type mark struct {
	At   int
	Text string
}

// marksOf returns the tooltip of each time step of a chart. Steps in which all series are 0 have no
// tooltip.
func marksOf(start time.Time, step time.Duration, list []series) (marks []mark) {
	for i := range list[0].values {
		var sum int64
		var parts []string
		for _, s := range list {
			if n := s.values[i]; n > 0 {
				sum += n
				parts = append(parts, s.name+" "+number(n))
			}
		}
		if sum > 0 {
			at := start.Add(step * time.Duration(i)).UTC().Format("2 Jan, 15:04")
			marks = append(marks, mark{i, at + " UTC: " + number(sum) + " (" + strings.Join(parts, ", ") + ")"})
		}
	}
	return marks
}

type plotRow struct {
	Label  string
	Values []int64
}

// plotHeight is the height of the drawing in its own units. If a plot has more than manySteps
// steps, its bars are about a pixel wide.
const (
	plotHeight = 100
	manySteps  = 200
)

// series is one kind of numbers, one number for each step.
type series struct {
	class, name string
	values      []int64
}

// newPlot draws the series; the steps begin at start. If there are many steps, the table sums them
// up in groups of the size group.
func newPlot(label string, start time.Time, step time.Duration, group int, list []series) plot {
	steps := len(list[0].values)
	p := plot{Label: label, Width: steps, RowHeading: "Hour (UTC)"}
	heights := make([]int64, steps)
	for _, s := range list {
		for i, v := range s.values {
			heights[i] += v
		}
	}
	for _, h := range heights {
		p.Total += h
	}
	p.Marks = marksOf(start, step, list)
	p.Top = roundUp(slices.Max(heights))
	ground := make([]float64, steps)
	for _, s := range list {
		b := bars{Class: s.class, Name: s.name}
		var path strings.Builder
		for i, v := range s.values {
			b.Total += v
			if v == 0 {
				continue
			}
			h := float64(v) * plotHeight / float64(p.Top)
			// A bar of a pixel or less has no space for a gap.
			width, gap := .8, .1
			if steps > manySteps {
				width, gap = 1, 0
			}
			fmt.Fprintf(&path, "M%.2f %.2fh%gv%.2fh-%gz", float64(i)+gap, plotHeight-ground[i]-h, width, h, width)
			ground[i] += h
		}
		b.Path = path.String()
		p.Bars = append(p.Bars, b)
		p.Names = append(p.Names, s.name)
	}
	layout := "2 Jan, 15:04"
	if group > 1 {
		layout, p.RowHeading = "2 Jan", "Day (UTC)"
	}
	end := start.Add(step * time.Duration(steps))
	p.From, p.To = start.UTC().Format("2 Jan, 15:04")+" UTC", end.UTC().Format("2 Jan, 15:04")+" UTC"
	byLabel := map[string]int{}
	for i := range steps {
		at := start.Add(step * time.Duration(i)).UTC().Format(layout)
		n, ok := byLabel[at]
		if !ok {
			n = len(p.Rows)
			byLabel[at] = n
			p.Rows = append(p.Rows, plotRow{at, make([]int64, len(list))})
		}
		for k, s := range list {
			p.Rows[n].Values[k] += s.values[i]
		}
	}
	slices.Reverse(p.Rows)
	return p
}

// roundUp returns the next number that is 1, 2 or 5 times a power of ten.
func roundUp(n int64) int64 {
	for unit := int64(1); ; unit *= 10 {
		for _, m := range []int64{1, 2, 5} {
			if n <= m*unit {
				return m * unit
			}
		}
	}
}
