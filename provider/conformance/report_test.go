// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"encoding/xml"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger/outrigger/provider/conformance"
	"github.com/outrigger/outrigger/provider/fake"
)

func someResults() []conformance.Result {
	check := func(name string) conformance.Check {
		return conformance.Check{Name: name, Contract: "It does <that> & more."}
	}
	return []conformance.Result{
		{Check: check("one"), Status: conformance.Passed, Took: 1500 * time.Millisecond},
		{Check: check("two"), Status: conformance.Failed, Messages: []string{"wrong \"a\" & <b>\x00\x1b[0m", "two\nlines ]]>"}, Took: time.Millisecond},
		{Check: check("three"), Status: conformance.Skipped, Messages: []string{"not checked: no power"}},
	}
}

func TestWriteText(t *testing.T) {
	var text strings.Builder
	if err := conformance.WriteText(&text, someResults()); err != nil {
		t.Fatal(err)
	}
	want := "passed  one (1.50s)\n" +
		"failed  two (0.00s)\n        contract: It does <that> & more.\n        wrong \"a\" & <b>\x00\x1b[0m\n        two\n        lines ]]>\n" +
		"skipped three (0.00s): not checked: no power\n" +
		"3 checks: 1 passed, 1 failed, 1 skipped, 1.5s\n"
	if diff := cmp.Diff(want, text.String()); diff != "" {
		t.Error(diff)
	}
}

// TestWriteJUnit reads the report back as a consumer does.
func TestWriteJUnit(t *testing.T) {
	var text strings.Builder
	if err := conformance.WriteJUnit(&text, "my<cloud>", someResults()); err != nil {
		t.Fatal(err)
	}
	var got struct {
		XMLName  xml.Name `xml:"testsuites"`
		Failures int      `xml:"failures,attr"`
		Suite    struct {
			Name    string `xml:"name,attr"`
			Tests   int    `xml:"tests,attr"`
			Skipped int    `xml:"skipped,attr"`
			Cases   []struct {
				Name    string  `xml:"name,attr"`
				Time    float64 `xml:"time,attr"`
				Failure *string `xml:"failure"`
				Skipped *struct {
					Message string `xml:"message,attr"`
				} `xml:"skipped"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal([]byte(text.String()), &got); err != nil {
		t.Fatalf("%v in:\n%s", err, text.String())
	}
	suite := got.Suite
	if got.Failures != 1 || suite.Tests != 3 || suite.Skipped != 1 || suite.Name != "my<cloud>" || len(suite.Cases) != 3 {
		t.Errorf("got %+v of:\n%s", got, text.String())
	}
	one, two, three := suite.Cases[0], suite.Cases[1], suite.Cases[2]
	if one.Name != "one" || one.Time != 1.5 || one.Failure != nil || one.Skipped != nil {
		t.Errorf("passed: %+v", one)
	}
	if two.Failure == nil || !strings.Contains(*two.Failure, `wrong "a" & <b>`) || !strings.Contains(*two.Failure, "two\nlines ]]>") {
		t.Errorf("failed: %+v", two)
	}
	if three.Skipped == nil || three.Skipped.Message != "not checked: no power" || three.Failure != nil {
		t.Errorf("skipped: %+v", three)
	}
}

type fullDisk struct{ room int }

func (f *fullDisk) Write(p []byte) (int, error) {
	if len(p) > f.room {
		return 0, errors.New("no space left on device")
	}
	f.room -= len(p)
	return len(p), nil
}

func TestReportsTellOfAFullDisk(t *testing.T) {
	for room := range 60 {
		if conformance.WriteText(&fullDisk{room}, someResults()) == nil {
			t.Errorf("text: no error with room for %d bytes", room)
		}
		if conformance.WriteJUnit(&fullDisk{room}, "x", someResults()) == nil {
			t.Errorf("JUnit: no error with room for %d bytes", room)
		}
	}
}

func TestProgress(t *testing.T) {
	cloud := newCloud(t, fake.Options{})
	var told []string
	options := conformance.Options{
		Started: func(check conformance.Check, number, of int) {
			told = append(told, fmt.Sprintf("%d/%d %s", number, of, check.Name))
		},
		Ended: func(result conformance.Result) { told = append(told, string(result.Status)) },
	}
	checks := slices.Concat(only("delete-absent"), only("key-reopened"))
	conformance.ExecuteWith(t.Context(), options, checks, func(conformance.T) conformance.Subject {
		return conformance.Subject{Provider: cloud.Reopen()}
	})
	if diff := cmp.Diff([]string{"1/2 delete-absent", "passed", "2/2 key-reopened", "skipped"}, told); diff != "" {
		t.Error(diff)
	}
}
