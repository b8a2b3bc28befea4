// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// maxLine bounds a line of a record: two bodies, quoted, and what is around them.
const maxLine = 8 * maxBody

// Read returns the exchanges of a folder.
func Read(dir string) (all []Exchange, err error) {
	file, err := os.Open(filepath.Join(dir, File))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, maxLine)
	for n := 1; lines.Scan(); n++ {
		var e Exchange
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", file.Name(), n, err)
		}
		all = append(all, e)
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no exchange", file.Name())
	}
	return all, nil
}

// identifier is a part of a path that names one thing: UUIDs, numbers, and names
// with digits in them.
var identifier = regexp.MustCompile(`^([0-9a-fA-F-]{8,}|[0-9]+|[\w.-]*[0-9][\w.-]{5,})$`)

// operation names a call without the things that it is about.
func (e Exchange) operation() string {
	parts := strings.Split(e.Path, "/")
	for i, part := range parts {
		if identifier.MatchString(part) {
			parts[i] = "{}"
		}
	}
	return e.Method + " " + strings.Join(parts, "/")
}

// shape has the kinds of an answer's members, by their paths.
type shape map[string]string

func (s shape) add(path string, value any) {
	switch v := value.(type) {
	case map[string]any:
		for name, inner := range v {
			s.add(path+"."+name, inner)
		}
	case []any:
		for _, inner := range v {
			s.add(path+"[]", inner)
		}
	case nil: // it says nothing of its kind
		if s[path] == "" {
			s[path] = "null"
		}
	default:
		s[path] = fmt.Sprintf("%T", v)
	}
}

// shapes returns the answers of each operation, by status.
func shapes(all []Exchange) map[string]map[int]shape {
	seen := map[string]map[int]shape{}
	for _, e := range all {
		if e.Status == 0 {
			continue // there was no answer
		}
		name := e.operation()
		if seen[name] == nil {
			seen[name] = map[int]shape{}
		}
		if seen[name][e.Status] == nil {
			seen[name][e.Status] = shape{}
		}
		var value any
		if json.Unmarshal([]byte(e.Response), &value) == nil {
			seen[name][e.Status].add("", value)
		}
	}
	return seen
}

// Compare returns where a simulator differs from what a cloud has answered, in the
// operations that both have: statuses that the cloud never answered, and members
// that it has not or that are of another kind. That a simulator has fewer members
// is not a difference: nobody reads them all.
func Compare(cloud, simulator []Exchange) (differences []string) {
	truth, simulated := shapes(cloud), shapes(simulator)
	for _, name := range slices.Sorted(maps.Keys(truth)) {
		for _, status := range slices.Sorted(maps.Keys(simulated[name])) {
			known, ok := truth[name][status]
			switch {
			case !ok && isGone(name, status) && onlySuccess(truth[name]):
				continue // whether a deletion is repeated is a matter of time
			case !ok:
				differences = append(differences, fmt.Sprintf("%s: the simulator answers %d, the cloud %v", name, status, slices.Sorted(maps.Keys(truth[name]))))
				continue
			}
			for _, line := range known.differences(simulated[name][status]) {
				differences = append(differences, fmt.Sprintf("%s: %d: %s", name, status, line))
			}
		}
	}
	return differences
}

// isGone reports whether a status is that of a deletion of what is gone.
func isGone(operation string, status int) bool {
	return strings.HasPrefix(operation, http.MethodDelete+" ") && (status == http.StatusNotFound || status == http.StatusGone)
}

// onlySuccess reports whether a cloud never refused an operation. If it is a deletion,
// the record does not show what the cloud says of a resource that is gone.
func onlySuccess(answers map[int]shape) bool {
	for status := range answers {
		if status >= 300 {
			return false
		}
	}
	return true
}

func (s shape) differences(simulated shape) (lines []string) {
	for _, path := range slices.Sorted(maps.Keys(simulated)) {
		kind, there := simulated[path], s[path]
		switch {
		case len(s) == 0, kind == "null", there == "null", there == kind:
		case there == "":
			lines = append(lines, "the simulator has "+path+", the cloud has not")
		default:
			lines = append(lines, fmt.Sprintf("%s is a %s in the simulator and a %s in the cloud", path, kind, there))
		}
	}
	return lines
}
