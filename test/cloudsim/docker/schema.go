// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// resolve follows a reference.
func (d *definition) resolve(s *schema) *schema {
	for s != nil && s.Ref != "" {
		s = d.Definitions[strings.TrimPrefix(s.Ref, "#/definitions/")]
	}
	return s
}

// checkQuery compares the parameters of a query with the definition.
func (o *operation) checkQuery(query url.Values) error {
	known := map[string]*parameter{}
	for _, p := range o.Parameters {
		if p.In != "query" {
			continue
		}
		known[p.Name] = p
		if p.Required && query.Get(p.Name) == "" {
			return fmt.Errorf("%s: parameter %s is required", o.ID, p.Name)
		}
	}
	for name, values := range query {
		p := known[name]
		if p == nil || len(values) != 1 {
			return fmt.Errorf("%s: parameter %s is unknown or there twice", o.ID, name)
		}
		if err := p.checkText(values[0]); err != nil {
			return fmt.Errorf("%s: parameter %s: %w", o.ID, name, err)
		}
	}
	return nil
}

// checkText checks a parameter, which is text whatever its type.
func (s *schema) checkText(text string) error {
	switch s.Type {
	case "boolean":
		// The engine takes these for false, and all else for true
		// (httputils.BoolValue); its client writes 0, 1, false and true.
		if !slices.Contains([]string{"", "0", "1", "false", "true"}, text) {
			return fmt.Errorf("%q is not a boolean", text)
		}
	case "integer":
		if _, err := strconv.ParseInt(text, 10, 64); err != nil {
			return fmt.Errorf("%q is not a whole number", text)
		}
	default:
		return s.checkString(text)
	}
	return nil
}

// checkString takes what is empty for unset, as the engine does.
func (s *schema) checkString(text string) error {
	if text == "" {
		return nil
	}
	if len(s.Enum) > 0 && !slices.Contains(s.Enum, any(text)) {
		return fmt.Errorf("%q is none of %v", text, s.Enum)
	}
	if s.Pattern != "" {
		if ok, err := regexp.MatchString(s.Pattern, text); err != nil || !ok {
			return fmt.Errorf("%q does not match %s", text, s.Pattern)
		}
	}
	return nil
}

// body returns the schema of a call's body, or nil.
func (o *operation) body() *schema {
	for _, p := range o.Parameters {
		if p.In == "body" {
			return p.Body
		}
	}
	return nil
}

// checkJSON compares a document with a schema.
func (d *definition) checkJSON(s *schema, text []byte) error {
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		return err
	}
	return d.check(s, value, "body")
}

// check compares a value with a schema. null is not a value.
func (d *definition) check(s *schema, value any, at string) error {
	if s = d.resolve(s); s == nil || value == nil {
		return nil
	}
	switch v := value.(type) {
	case map[string]any:
		return d.checkObject(s, v, at)
	case []any:
		return d.checkList(s, v, at)
	case string:
		if err := s.wantType("string", at, value); err != nil {
			return err
		}
		if err := s.checkString(v); err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
	case bool:
		return s.wantType("boolean", at, value)
	case float64:
		return s.checkNumber(v, at)
	}
	return nil
}

func (s *schema) wantType(kind, at string, value any) error {
	if s.Type != "" && s.Type != kind {
		return fmt.Errorf("%s is %v and must be of type %s", at, value, s.Type)
	}
	return nil
}

func (s *schema) checkNumber(n float64, at string) error {
	switch {
	case s.Type != "number" && (s.Type != "integer" || n != math.Trunc(n)):
		return fmt.Errorf("%s is %v and must be of type %s", at, n, s.Type)
	case s.Minimum != nil && n < *s.Minimum, s.Maximum != nil && n > *s.Maximum:
		return fmt.Errorf("%s is %v, which is out of range", at, n)
	}
	return nil
}

func (d *definition) checkList(s *schema, list []any, at string) error {
	if err := s.wantType("array", at, list); err != nil {
		return err
	}
	for i, item := range list {
		if err := d.check(s.Items, item, fmt.Sprintf("%s[%d]", at, i)); err != nil {
			return err
		}
	}
	return nil
}

// object is what an object may have, also by allOf.
type object struct {
	properties map[string]*schema
	required   []string
	additional additional
}

func (d *definition) object(s *schema, into *object) {
	s = d.resolve(s)
	maps.Copy(into.properties, s.Properties)
	into.required = append(into.required, s.Members...)
	if s.Additional.any || s.Additional.schema != nil {
		into.additional = s.Additional
	}
	for _, part := range s.AllOf {
		d.object(part, into)
	}
}

func (d *definition) checkObject(s *schema, value map[string]any, at string) error {
	if err := s.wantType("object", at, value); err != nil {
		return err
	}
	o := &object{properties: map[string]*schema{}}
	d.object(s, o)
	for name, item := range value {
		if err := d.checkMember(o, name, item, at+"."+name); err != nil {
			return err
		}
	}
	for _, name := range o.required {
		if _, there := value[name]; !there {
			return fmt.Errorf("%s.%s is required", at, name)
		}
	}
	return nil
}

func (d *definition) checkMember(o *object, name string, value any, at string) error {
	inner := o.properties[name]
	if inner == nil {
		inner = o.additional.schema
	}
	// An object without a description may hold anything. Programs in Go also
	// send members of newer versions, with nothing in them.
	if inner == nil && (o.additional.any || len(o.properties) == 0 || nothing(value)) {
		return nil
	}
	if inner == nil {
		return fmt.Errorf("%s is not known", at)
	}
	if name == "MemorySwappiness" && value == float64(-1) {
		return nil // the engine takes it for unset, and Docker's own client sends it
	}
	return d.check(inner, value, at)
}

func nothing(value any) bool {
	switch v := value.(type) {
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return value == nil || value == "" || value == false || value == float64(0)
}
