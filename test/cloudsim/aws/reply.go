// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"encoding/xml"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// obj is a structure of a reply, by the names that the definition gives its
// members.
type obj map[string]any

// objs is a list of structures.
type objs []obj

// encoder writes replies by the definition: a member that it does not have is
// a mistake of the simulator's.
type encoder struct {
	d   *definition
	out strings.Builder
}

// reply writes the answer of an operation.
func (d *definition) reply(w http.ResponseWriter, operationName string, answer obj) {
	e := &encoder{d: d}
	fmt.Fprintf(&e.out, `<?xml version="1.0" encoding="UTF-8"?>`+"\n"+`<%sResponse xmlns="%s">`, operationName, d.Metadata.XMLNamespace)
	op := d.Operations[operationName]
	wrapper := ""
	if op.Output != nil {
		wrapper = op.Output.ResultWrapper
	}
	if wrapper == "" {
		e.text("requestId", "59dbff89-35bd-4eac-99ed-be587EXAMPLE")
	} else {
		fmt.Fprintf(&e.out, "<%s>", wrapper)
	}
	if op.Output != nil {
		e.structure(op.Output.Shape, answer)
	}
	if wrapper != "" {
		fmt.Fprintf(&e.out, "</%s>", wrapper)
	}
	fmt.Fprintf(&e.out, "</%sResponse>", operationName)
	w.Header().Set("Content-Type", "text/xml;charset=UTF-8")
	fmt.Fprint(w, e.out.String())
}

func (e *encoder) text(name, value string) {
	fmt.Fprintf(&e.out, "<%s>", name)
	if err := xml.EscapeText(&e.out, []byte(value)); err != nil {
		panic(err)
	}
	fmt.Fprintf(&e.out, "</%s>", name)
}

func (e *encoder) structure(shapeName string, answer obj) {
	s := e.d.Shapes[shapeName]
	for name, value := range answer {
		m := s.Members[name]
		if m == nil {
			panic(fmt.Sprintf("the definition's %s has no member %s", shapeName, name))
		}
		element := m.LocationName
		if element == "" {
			element = name
		}
		e.value(m, element, value)
	}
}

func (e *encoder) value(m *member, element string, value any) {
	s := e.d.shape(m)
	switch value := value.(type) {
	case nil:
	case obj:
		e.want(s, m, "structure")
		fmt.Fprintf(&e.out, "<%s>", element)
		e.structure(m.Shape, value)
		fmt.Fprintf(&e.out, "</%s>", element)
	case objs:
		e.list(s, m, element, len(value), func(i int) any { return value[i] })
	case []string:
		e.list(s, m, element, len(value), func(i int) any { return value[i] })
	case time.Time:
		e.want(s, m, "timestamp")
		e.text(element, value.UTC().Format("2006-01-02T15:04:05.000Z"))
	case bool:
		e.want(s, m, "boolean")
		e.text(element, fmt.Sprint(value))
	case int:
		e.want(s, m, "integer", "long")
		e.text(element, fmt.Sprint(value))
	case string:
		e.want(s, m, "string")
		e.text(element, value)
	default:
		panic(fmt.Sprintf("%s is a %T", element, value))
	}
}

func (e *encoder) want(s *shape, m *member, kinds ...string) {
	for _, kind := range kinds {
		if s.Type == kind {
			return
		}
	}
	panic(fmt.Sprintf("the definition's %s is a %s, not a %s", m.Shape, s.Type, kinds[0]))
}

func (e *encoder) list(s *shape, m *member, element string, n int, entry func(int) any) {
	e.want(s, m, "list")
	fmt.Fprintf(&e.out, "<%s>", element)
	for i := range n {
		name := s.Member.LocationName
		if name == "" {
			name = "member"
		}
		e.value(s.Member, name, entry(i))
	}
	fmt.Fprintf(&e.out, "</%s>", element)
}
