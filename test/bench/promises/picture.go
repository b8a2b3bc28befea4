// SPDX-License-Identifier: Apache-2.0

package promises

import (
	"fmt"
	"html"
	"slices"
	"strings"
)

// Bar is a line of a picture: parts, one after the other, and marks beside them.
type Bar struct {
	Name  string
	Parts []Part
	Marks []Mark
}

// Part is a length in the picture's unit.
type Part struct {
	Name   string
	Length float64
}

// Mark is a place on the scale of the picture.
type Mark struct {
	Name string
	At   float64
}

// Sizes of a picture, in pixels.
const (
	barNames, barLengths, barRow = 190, 640, 44
	pictureWidth                 = barNames + barLengths + 70
)

// colors of parts, in the order in which their names come. They differ for the
// colour-blind as well (Okabe and Ito, "Color Universal Design").
var colors = []string{"#0072b2", "#e69f00", "#009e73", "#56b4e9", "#d55e00", "#cc79a7", "#999999"}

// Picture draws bars as an SVG that needs no other file.
func Picture(title, unit string, bars []Bar) string {
	names, most := partNames(bars), longest(bars)
	var out strings.Builder
	height := barRow * (len(bars) + 2)
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d" font-family="sans-serif" font-size="13">`+"\n", pictureWidth, height)
	fmt.Fprintf(&out, `<rect width="%d" height="%d" fill="white"/>`+"\n", pictureWidth, height)
	text := func(x, y float64, anchor, what string) {
		fmt.Fprintf(&out, `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`+"\n", x, y, anchor, html.EscapeString(what))
	}
	text(8, 20, "start", title)
	scale := func(v float64) float64 { return barNames + v/most*barLengths }
	for i, bar := range bars {
		top, at := float64(barRow*(i+1)), 0.0
		text(barNames-8, top+16, "end", bar.Name)
		for _, part := range bar.Parts {
			fmt.Fprintf(&out, `<rect x="%.1f" y="%.1f" width="%.1f" height="22" fill="%s"><title>%s: %s %s</title></rect>`+"\n",
				scale(at), top, scale(part.Length)-barNames, colors[slices.Index(names, part.Name)%len(colors)], html.EscapeString(part.Name), digits(part.Length), unit)
			at += part.Length
		}
		for _, mark := range bar.Marks {
			fmt.Fprintf(&out, `<path d="M%.1f %.1fv26" stroke="black"/>`+"\n", scale(mark.At), top-2)
			text(scale(mark.At), top+36, "middle", fmt.Sprintf("%s %s %s", mark.Name, digits(mark.At), unit))
		}
	}
	each := float64(pictureWidth-16) / float64(max(len(names), 1))
	for i, name := range names {
		x, y := 8+each*float64(i), float64(height-24)
		fmt.Fprintf(&out, `<rect x="%.1f" y="%.1f" width="12" height="12" fill="%s"/>`+"\n", x, y, colors[i%len(colors)])
		text(x+17, y+11, "start", name)
	}
	out.WriteString("</svg>\n")
	return out.String()
}

func partNames(bars []Bar) (names []string) {
	for _, bar := range bars {
		for _, part := range bar.Parts {
			if !slices.Contains(names, part.Name) {
				names = append(names, part.Name)
			}
		}
	}
	return names
}

// longest is the end of the scale; above 0.
func longest(bars []Bar) float64 {
	most := 1e-9
	for _, bar := range bars {
		sum := 0.0
		for _, part := range bar.Parts {
			sum += part.Length
		}
		most = max(most, sum)
		for _, mark := range bar.Marks {
			most = max(most, mark.At)
		}
	}
	return most
}
