// SPDX-License-Identifier: Apache-2.0

// Package util has the functions of upstream's package of that name that need nothing
// but Go.
package util

import (
	"reflect"
	"slices"
	"strings"

	"github.com/outrigger/outrigger/provider"
)

// GenerateInstanceName returns podvm-<pod>-<first 8 of the sandbox id> in at most longest
// characters; the pod's part is cut.
func GenerateInstanceName(podName, sandboxID string, longest int) string {
	name := provider.InstanceName(podName, sandboxID)
	if over := len(name) - longest; over > 0 {
		cut := max(0, len(podName)-over)
		name = provider.InstanceName(podName[:min(cut, 63)], sandboxID)
	}
	return name[:min(len(name), max(longest, 0))]
}

// Contains reports whether s is in the list.
func Contains(list []string, s string) bool { return slices.Contains(list, s) }

// RedactStruct returns a pointer to a copy of the struct to which struc points, without
// the text of the fields that are named.
func RedactStruct(struc any, fields ...string) any {
	from := reflect.Indirect(reflect.ValueOf(struc))
	redacted := reflect.New(from.Type())
	redacted.Elem().Set(from)
	for _, name := range fields {
		if field := redacted.Elem().FieldByName(name); field.IsValid() && field.Kind() == reflect.String && field.CanSet() && field.Len() > 0 {
			field.SetString(strings.Repeat("*", 10))
		}
	}
	return redacted.Interface()
}
