// SPDX-License-Identifier: Apache-2.0

package podsize

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

	corev1 "k8s.io/api/core/v1"
)

// maxQuantity is the length of the longest quantity that is read, in bytes.
const maxQuantity = 64

// hugeExponent is what resource.Quantity would take and then calculate with in
// megabytes of digits: 1e999999 has ten bytes.
var hugeExponent = regexp.MustCompile(`[eE][+-]?0*[1-9][0-9]{2,}"?$`)

// ReadList decodes a list of resources that a user may have written, whatever
// his numbers would cost.
func ReadList(data []byte) (corev1.ResourceList, error) {
	var texts map[string]json.RawMessage
	if len(data) == 0 {
		return nil, nil
	}
	if err := json.Unmarshal(data, &texts); err != nil {
		return nil, err
	}
	for name, text := range texts {
		if len(text) > maxQuantity || hugeExponent.Match(text) {
			return nil, fmt.Errorf("%.80q: %.40q is not a quantity that anything has", name, text)
		}
	}
	var list corev1.ResourceList
	err := json.Unmarshal(data, &list)
	return list, err
}

// UnmarshalJSON reads both lists by ReadList.
func (was *Resources) UnmarshalJSON(data []byte) error {
	var texts struct{ Requests, Limits json.RawMessage }
	if err := json.Unmarshal(data, &texts); err != nil {
		return err
	}
	var err, limitsErr error
	was.Requests, err = ReadList(texts.Requests)
	was.Limits, limitsErr = ReadList(texts.Limits)
	return errors.Join(err, limitsErr)
}
