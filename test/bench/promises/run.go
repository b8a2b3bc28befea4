// SPDX-License-Identifier: Apache-2.0

package promises

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Run is what the benchmarks have measured in one run. They write it again after
// each measurement, so that it is there also when one of them ends the program.
type Run struct {
	Time       time.Time `json:"time"`
	Commit     string    `json:"commit"`
	Kernel     string    `json:"kernel"`
	Processors int       `json:"processors"`
	// Runs is how often each figure was measured; it is the median.
	Runs int `json:"runs"`
	// Load is the average over 15 minutes.
	Load float64 `json:"load"`
	// Asked are the names of the promises that were to be measured.
	Asked   []string `json:"asked"`
	Figures []Figure `json:"figures"`
	// Tables are further sections of docs/benchmarks.md.
	Tables []string `json:"tables,omitempty"`
	// Pictures are files of docs/pictures, by their names.
	Pictures map[string]string `json:"pictures,omitempty"`
}

// Figure is a line of the first table of docs/benchmarks.md.
type Figure struct {
	// Promise is its name, and Value what was measured, in its unit. A figure
	// of which nothing is promised has What and Measured instead.
	Promise  string  `json:"promise,omitempty"`
	Value    float64 `json:"value"`
	What     string  `json:"what,omitempty"`
	Measured string  `json:"measured,omitempty"`
	How      string  `json:"how,omitempty"`
	// Others is the share of the processors that others took just before or after.
	Others float64 `json:"others,omitempty"`
}

// Write replaces a file by the run.
func (r *Run) Write(path string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}

// ReadRun reads what Write has written. Every name in it must be one of all.
func ReadRun(path string, all []Promise) (*Run, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the benchmarks have left no figures: %w", err)
	}
	r := new(Run)
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	used := slices.Clone(r.Asked)
	for _, f := range r.Figures {
		if f.Promise != "" {
			used = append(used, f.Promise)
		}
	}
	for _, name := range used {
		if _, ok := Find(all, name); !ok {
			return nil, fmt.Errorf("%s: there is no promise %q; the promises are in test/bench/promises/table.go", path, name)
		}
	}
	return r, nil
}
