// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// parameters are those of one call, and which of them were looked at.
type parameters struct {
	values url.Values
	used   map[string]bool
}

func (p *parameters) text(name string) string {
	p.used[name] = true
	return p.values.Get(name)
}

// number returns the default for a parameter that is not there. Its type was
// checked.
func (p *parameters) number(name string, standard int) int {
	text := p.text(name)
	if text == "" {
		return standard
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return standard
	}
	return n
}

func (p *parameters) bool(name string) bool {
	b, err := strconv.ParseBool(p.text(name))
	return err == nil && b
}

// list returns Name.1, Name.2 and so on.
func (p *parameters) list(name string) []string {
	var all []string
	for n := 1; p.values.Has(name + "." + strconv.Itoa(n)); n++ {
		all = append(all, p.text(name+"."+strconv.Itoa(n)))
	}
	return all
}

// tags returns Tag.N.Key and Tag.N.Value.
func (p *parameters) tags() (map[string]string, error) {
	tags := map[string]string{}
	for n := 1; p.values.Has("Tag." + strconv.Itoa(n) + ".Key"); n++ {
		at := "Tag." + strconv.Itoa(n)
		key, value := p.text(at+".Key"), p.text(at+".Value")
		if err := checkTag(key, value); err != nil {
			return nil, err
		}
		if _, twice := tags[key]; twice {
			return nil, refuse("InvalidTagKey.Malformed", "The tag %s is there twice.", key)
		}
		tags[key] = value
	}
	if len(tags) > 20 {
		return nil, refuse("InvalidTagCount", "There are %d tags, and 20 at most.", len(tags))
	}
	return tags, nil
}

func checkTag(key, value string) error {
	if key == "" || len(key) > 128 || strings.HasPrefix(key, "aliyun") || strings.HasPrefix(key, "acs:") || strings.Contains(key, "http://") || strings.Contains(key, "https://") {
		return refuse("InvalidTagKey.Malformed", "The tag key %q is not valid.", key)
	}
	if len(value) > 128 || strings.Contains(value, "http://") || strings.Contains(value, "https://") {
		return refuse("InvalidTagValue.Malformed", "The tag value %q is not valid.", value)
	}
	return nil
}

// useAll is for an answer that does not depend on them.
func (p *parameters) useAll() {
	for name := range p.values {
		p.used[name] = true
	}
}

// unused returns the parameters that nobody looked at.
func (p *parameters) unused() []string {
	var names []string
	for name := range p.values {
		if !p.used[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// oneOf refuses a value that is not among those the API names.
func oneOf(code, value string, choices ...string) error {
	if value != "" && !slices.Contains(choices, value) {
		return refuse(code, "%q is none of %v.", value, choices)
	}
	return nil
}
