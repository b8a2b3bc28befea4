// SPDX-License-Identifier: Apache-2.0

package promises

import (
	"encoding/xml"
	"io"
	"strings"
	"testing"
)

func TestPicture(t *testing.T) {
	svg := Picture("a < b", "s", []Bar{
		{Name: "cold", Parts: []Part{{"boot", 1}, {"pull & start", 3}}, Marks: []Mark{{"p99", 8}}},
		{Name: "restored", Parts: []Part{{"pull & start", 2}}},
	})
	for decoder := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := decoder.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("%v\n%s", err, svg)
		}
	}
	for _, want := range []string{
		`width="80.0" height="22" fill="#0072b2"`, // 1 of 8, the mark's
		`x="270.0" y="44.0" width="240.0"`,        // begins where boot ends
		`width="160.0" height="22" fill="#e69f00"`, "p99 8.00 s", "a &lt; b", "M830.0 42.0v26",
	} {
		if !strings.Contains(svg, want) {
			t.Errorf("no %s in\n%s", want, svg)
		}
	}
	if strings.Count(svg, ">pull &amp; start<") != 1 {
		t.Error("the legend does not have each part once")
	}
}
