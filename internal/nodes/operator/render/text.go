// SPDX-License-Identifier: Apache-2.0

package render

import (
	"bytes"
	"encoding/json"
	"io"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// fields returns an object as a person would write it: without status, and without the
// fields that only the API server sets.
func fields(o client.Object) (map[string]any, error) {
	all, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, err
	}
	delete(all, "status")
	prune(all)
	return all, nil
}

// prune removes timestamps that are null and resources that are empty, which is
// how Go writes those that nobody set.
func prune(value any) {
	switch v := value.(type) {
	case map[string]any:
		if at, has := v["creationTimestamp"]; has && at == nil {
			delete(v, "creationTimestamp")
		}
		if r, is := v["resources"].(map[string]any); is && len(r) == 0 {
			delete(v, "resources")
		}
		for _, inner := range v {
			prune(inner)
		}
	case []any:
		for _, inner := range v {
			prune(inner)
		}
	}
}

// YAML returns one object as YAML.
func YAML(o client.Object) ([]byte, error) {
	all, err := fields(o)
	if err != nil {
		return nil, err
	}
	return yaml.Marshal(all)
}

// WriteYAML writes objects as kubectl apply takes them.
func WriteYAML(w io.Writer, objects []client.Object) error {
	var out bytes.Buffer
	for _, o := range objects {
		text, err := YAML(o)
		if err != nil {
			return err
		}
		out.WriteString("---\n")
		out.Write(text)
	}
	_, err := w.Write(out.Bytes())
	return err
}

// WriteJSON writes objects as a List.
func WriteJSON(w io.Writer, objects []client.Object) error {
	items := make([]any, len(objects))
	for i, o := range objects {
		var err error
		if items[i], err = fields(o); err != nil {
			return err
		}
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
}
