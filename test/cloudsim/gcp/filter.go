// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"fmt"
	"regexp"
	"strings"
)

// condition is one parenthesis of a filter.
type condition struct {
	field    []string
	operator string
	value    string
	pattern  *regexp.Regexp
}

var (
	group = regexp.MustCompile(`^\s*\(([^()]*)\)`)
	term  = regexp.MustCompile(`^([a-zA-Z][a-zA-Z.]*(?:labels\.[a-z][a-z0-9_-]{0,62})?|labels\.[a-z][a-z0-9_-]{0,62})\s*(=|!=|:| eq | ne )\s*(?:"((?:[^"\\]|\\.)*)"|([^\s"()]+))$`)
)

// parseFilter reads the filters of lists (description of the parameter in the
// definition): conditions in parentheses, all of which must hold, either in the
// form of AIP-160 or with regular expressions, but not both.
func parseFilter(text string) ([]condition, error) {
	var list []condition
	for strings.TrimSpace(text) != "" {
		found := group.FindStringSubmatch(text)
		if found == nil {
			return nil, fmt.Errorf("invalid value for field 'filter': '%s'. Invalid list filter expression", text)
		}
		text = text[len(found[0]):]
		c, err := parseTerm(found[1])
		if err != nil {
			return nil, err
		}
		if len(list) > 0 && (list[0].pattern == nil) != (c.pattern == nil) {
			return nil, fmt.Errorf("invalid value for field 'filter': the two kinds of expressions are mixed")
		}
		list = append(list, c)
	}
	return list, nil
}

func parseTerm(text string) (condition, error) {
	found := term.FindStringSubmatch(strings.TrimSpace(text))
	if found == nil {
		return condition{}, fmt.Errorf("invalid value for field 'filter': '%s'. Invalid list filter expression", text)
	}
	c := condition{field: strings.SplitN(found[1], ".", 2), operator: strings.TrimSpace(found[2]), value: found[3] + found[4]}
	if c.operator == "eq" || c.operator == "ne" {
		pattern, err := regexp.Compile("^(?:" + c.value + ")$")
		if err != nil {
			return c, fmt.Errorf("invalid value for field 'filter': %w", err)
		}
		c.pattern = pattern
	}
	return c, nil
}

func (c condition) holds(object map[string]any) bool {
	var value any = object
	for _, name := range c.field {
		inner, _ := value.(map[string]any)
		value = inner[name]
	}
	text, there := value.(string)
	switch c.operator {
	case "=":
		return there && text == c.value
	case "!=":
		return text != c.value
	case ":":
		return there && (c.value == "*" || strings.Contains(text, c.value))
	case "eq":
		return c.pattern.MatchString(text)
	}
	return !c.pattern.MatchString(text)
}

func all(conditions []condition, object map[string]any) bool {
	for _, c := range conditions {
		if !c.holds(object) {
			return false
		}
	}
	return true
}
