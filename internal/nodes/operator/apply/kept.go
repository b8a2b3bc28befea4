// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"encoding/json"
	"errors"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Sum changes with the objects, and with what their pods read.
func (a *Applier) Sum(ctx context.Context, objects []client.Object) (string, error) {
	desired, err := a.prepare(objects)
	if err != nil {
		return "", err
	}
	all := make([]any, len(desired))
	for i, d := range desired {
		if d.kind.pods {
			if _, err := a.addConfigHash(ctx, d.object); err != nil {
				return "", err
			}
		}
		all[i] = d.object.Object
	}
	return sum(all), nil
}

// Encode writes objects down for [Decode].
func (a *Applier) Encode(objects []client.Object) ([]byte, error) {
	var failed []error
	all := make([]map[string]any, len(objects))
	for i, o := range objects {
		u, _, err := toUnstructured(o, a.Client.Scheme())
		if err != nil {
			failed = append(failed, err)
			continue
		}
		all[i] = u.Object
	}
	if err := errors.Join(failed...); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}

// Decode returns what [Applier.Encode] has written.
func Decode(text []byte) ([]client.Object, error) {
	var all []json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, err
	}
	objects := make([]client.Object, len(all))
	for i := range all {
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(all[i]); err != nil {
			return nil, err
		}
		objects[i] = u
	}
	return objects, nil
}
