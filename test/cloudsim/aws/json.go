// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func (d *definition) isJSON() bool { return strings.HasSuffix(d.Metadata.Protocol, "json") }

// route returns the operation of a request by the paths of the definition.
func (d *definition) route(r *http.Request) string {
	for name, op := range d.Operations {
		if op.HTTP.Method == r.Method && op.match(r.URL.Path) != nil {
			return name
		}
	}
	return ""
}

// match returns the parameters in a path, nil if the path is another's.
func (o *operation) match(path string) map[string]string {
	want, got := strings.Split(o.HTTP.RequestURI, "/"), strings.Split(path, "/")
	if len(want) != len(got) {
		return nil
	}
	found := map[string]string{}
	for i := range want {
		if name, ok := strings.CutPrefix(want[i], "{"); ok {
			found[strings.TrimSuffix(name, "}")] = got[i]
		} else if want[i] != got[i] {
			return nil
		}
	}
	return found
}

// input are the members of a request, by the definition's names, wherever they
// came from.
type input struct {
	members map[string]any
	blob    []byte // the payload, if it is one
}

func (in input) text(name string) string { text, _ := in.members[name].(string); return text }

func (in input) number(name string) int { n, _ := in.members[name].(float64); return int(n) }

// jsonHandlers are those of the services that speak JSON.
var jsonHandlers = map[string]func(*Cloud, input) (obj, *failure){
	"ebs:StartSnapshot":             (*Cloud).startSnapshot,
	"ebs:PutSnapshotBlock":          (*Cloud).putSnapshotBlock,
	"ebs:CompleteSnapshot":          (*Cloud).completeSnapshot,
	"servicequotas:GetServiceQuota": (*Cloud).getServiceQuota,
}

func (c *Cloud) serveJSON(w http.ResponseWriter, r *http.Request, body []byte, d *definition, service, name string) {
	answer, f := c.answerJSON(r, body, d, service, name)
	if f != nil {
		f.writeJSON(w)
		return
	}
	d.replyJSON(w, name, answer)
}

func (c *Cloud) answerJSON(r *http.Request, body []byte, d *definition, service, name string) (obj, *failure) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, f := verify(r, body, service, Region, c.now(), c.secrets); f != nil {
		return nil, f
	}
	op := d.Operations[name]
	handler := jsonHandlers[service+":"+name]
	if op == nil || handler == nil {
		return nil, fail("ValidationException", "the simulator has no %s:%s", service, name)
	}
	in, f := d.read(r, body, op)
	if f != nil {
		return nil, f
	}
	needed := []string{service + ":" + name}
	if in.members["Tags"] != nil {
		c.implied["ec2:CreateTags"] = true
		needed = append(needed, "ec2:CreateTags")
	}
	for _, action := range needed {
		if c.options.Denied[action] {
			return nil, &failure{"AccessDeniedException", "User: arn:aws:iam::123456789012:user/test is not authorized to perform: " + action, http.StatusForbidden}
		}
	}
	return handler(c, in)
}

// read collects the members of a request and holds them against the definition.
func (d *definition) read(r *http.Request, body []byte, op *operation) (input, *failure) {
	in := input{members: map[string]any{}}
	s := d.shape(op.Input)
	if s.Payload != "" {
		in.blob, in.members[s.Payload] = body, string(body)
	} else if len(body) > 0 {
		if err := json.Unmarshal(body, &in.members); err != nil {
			return in, fail("ValidationException", "the body is not JSON: %v", err)
		}
	}
	inPath := op.match(r.URL.Path)
	for name, m := range s.Members {
		text := ""
		switch m.Location {
		case "uri":
			text = inPath[m.LocationName]
		case "header":
			text = r.Header.Get(m.LocationName)
		case "querystring":
			text = r.URL.Query().Get(m.LocationName)
		default:
			continue
		}
		if text == "" {
			continue
		}
		in.members[name] = text
		if kind := d.shape(m).Type; kind == "integer" || kind == "long" {
			n, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return in, fail("ValidationException", "%s: %q is not a number", name, text)
			}
			in.members[name] = n
		}
	}
	return in, d.checkJSON(op.Input, in.members, op.Input.Shape)
}

// checkJSON refuses a value that is not what the definition says.
func (d *definition) checkJSON(m *member, value any, at string) *failure {
	s := d.shape(m)
	switch value := value.(type) {
	case map[string]any:
		return d.checkMembers(s, value, at)
	case []any:
		if s.Type != "list" {
			break
		}
		for i, entry := range value {
			if f := d.checkJSON(s.Member, entry, fmt.Sprintf("%s[%d]", at, i)); f != nil {
				return f
			}
		}
		return nil
	case string:
		if s.Type == "string" || s.Type == "blob" {
			return s.boundsJSON(value, float64(len(value)), at)
		}
	case float64:
		if s.Type == "integer" || s.Type == "long" || s.Type == "double" {
			return s.boundsJSON("", value, at)
		}
	case bool:
		if s.Type == "boolean" {
			return nil
		}
	}
	return fail("ValidationException", "%s: want a %s, not a %T", at, s.Type, value)
}

func (d *definition) checkMembers(s *shape, members map[string]any, at string) *failure {
	if s.Type != "structure" {
		return fail("ValidationException", "%s: want a %s", at, s.Type)
	}
	for _, name := range s.Required {
		if members[name] == nil {
			return fail("ValidationException", "%s lacks %s", at, name)
		}
	}
	for name, value := range members {
		m := s.Members[name]
		if m == nil {
			return fail("ValidationException", "%s has no member %s", at, name)
		}
		if f := d.checkJSON(m, value, at+"."+name); f != nil {
			return f
		}
	}
	return nil
}

func (s *shape) boundsJSON(text string, size float64, at string) *failure {
	switch {
	case len(s.Enum) > 0 && !slices.Contains(s.Enum, text):
		return fail("ValidationException", "%s: %q is none of %v", at, text, s.Enum)
	case s.Min != nil && size < *s.Min, s.Max != nil && size > *s.Max:
		return fail("ValidationException", "%s is out of bounds", at)
	case s.Pattern != "" && s.Type == "string" && !regexp.MustCompile(s.Pattern).MatchString(text):
		return fail("ValidationException", "%s: %q does not match %s", at, text, s.Pattern)
	}
	return nil
}

// replyJSON writes an answer whose members the definition must have.
func (d *definition) replyJSON(w http.ResponseWriter, name string, answer obj) {
	op := d.Operations[name]
	body := map[string]any{}
	for name, value := range answer {
		m := d.shape(op.Output).Members[name]
		if m == nil {
			panic(fmt.Sprintf("the definition's %s has no member %s", op.Output.Shape, name))
		}
		if m.Location == "header" {
			w.Header().Set(m.LocationName, fmt.Sprint(value))
			continue
		}
		body[name] = value
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(max(op.HTTP.ResponseCode, http.StatusOK))
	_ = json.NewEncoder(w).Encode(body)
}

func (f *failure) writeJSON(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Amzn-Errortype", f.Code)
	w.WriteHeader(f.Status)
	_ = json.NewEncoder(w).Encode(map[string]string{"__type": f.Code, "Message": f.Message})
}
