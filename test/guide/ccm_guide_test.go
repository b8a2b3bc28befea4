// SPDX-License-Identifier: Apache-2.0

package guide

import (
	"regexp"
	"strings"
	"testing"
)

// ccmGuide is run by TestCCMGuide, which needs root and the build tag
// integration. What is checked here needs neither.
const ccmGuide = "../../docs/ccm-integrate.md"

// TestCCMGuideIsLinked: who looks for it finds it.
func TestCCMGuideIsLinked(t *testing.T) {
	for _, file := range []string{"../../docs/README.md", "../../README.md", "../../docs/ccm-operator.md", "../../docs/ccm.md"} {
		if !strings.Contains(read(t, file), "ccm-integrate.md") {
			t.Errorf("%s does not lead to the guide", file)
		}
	}
}

// TestCCMGuideQuotesThePrograms: a message that no program prints helps nobody.
func TestCCMGuideQuotesThePrograms(t *testing.T) {
	_, table, ok := strings.Cut(read(t, ccmGuide), "## When something is wrong")
	if !ok {
		t.Fatal("the guide has no table of what can be wrong")
	}
	sources := readSources(t, "../../internal/nodes/ccm") + readSources(t, "../../internal/nodes/operator") + readSources(t, "../../internal/variables") + readSources(t, "../../provider")
	rows := regexp.MustCompile("(?m)^\\| (`.*?) \\|").FindAllStringSubmatch(table, -1)
	if len(rows) < 7 {
		t.Errorf("the table has only %d messages", len(rows))
	}
	for _, row := range rows {
		for _, message := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			// Errors are wrapped by ": ", each part in a place of its own.
			for part := range strings.SplitSeq(strings.ReplaceAll(message[1], "…", ": "), ": ") {
				if part = strings.Trim(part, ` "`); !strings.Contains(sources, part) {
					t.Errorf("message %q: no program says %q", message[1], part)
				}
			}
		}
	}
}
