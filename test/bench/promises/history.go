// SPDX-License-Identifier: Apache-2.0

package promises

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Entry is a line of the history: a run with what it judged.
type Entry struct {
	Time       time.Time `json:"time"`
	Commit     string    `json:"commit"`
	Kernel     string    `json:"kernel"`
	Processors int       `json:"processors"`
	Runs       int       `json:"runs"`
	Load       float64   `json:"load"`
	Points     []Point   `json:"points"`
}

// Point is a promise in a run. Value is not set if it did not run.
type Point struct {
	Promise  string  `json:"promise"`
	Value    float64 `json:"value"`
	Unit     string  `json:"unit"`
	Promised string  `json:"promised"`
	Verdict  Verdict `json:"verdict"`
}

// Append adds a run to the history in a file, which it makes if need be.
func (r *Run) Append(path string, all []Promise) error {
	e := Entry{Time: r.Time, Commit: r.Commit, Kernel: r.Kernel, Processors: r.Processors, Runs: r.Runs, Load: r.Load}
	for _, result := range r.Judge(all) {
		e.Points = append(e.Points, Point{result.Name, result.Value, result.Unit, result.Text(), result.Verdict})
	}
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(append(line, '\n'))
	return errors.Join(err, file.Close())
}

// ReadHistory reads the runs of a file, the oldest first.
func ReadHistory(path string) ([]Entry, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no run is on record in %s: `make bench` adds one", path)
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var all []Entry
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e Entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("%s, line %d: %w; remove the line", path, len(all)+1, err)
		}
		all = append(all, e)
	}
	return all, lines.Err()
}
