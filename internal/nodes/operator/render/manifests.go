// SPDX-License-Identifier: Apache-2.0

package render

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/internal/nodes/operator/bundle"
)

// ImagesKey is the key of a ConfigMap with images.
const ImagesKey = "images.json"

// read returns a file that is regular and has something in it.
func read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%q is not a regular file", path)
	case info.Size() == 0:
		return nil, fmt.Errorf("%q is empty", path)
	}
	text, err := os.ReadFile(path)
	if err == nil && documents(text) > 1 {
		err = fmt.Errorf("%q has several manifests; want one", path)
	}
	return text, err
}

// documents returns the number of documents of a YAML text, without empty ones.
func documents(text []byte) (n int) {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for part, err := reader.Read(); err == nil; part, err = reader.Read() {
		var content any
		if err := yaml.Unmarshal(part, &content); err != nil || content != nil {
			n++
		}
	}
	return n
}

// Infrastructure reads a manifest of an Infrastructure. Keys that are there
// twice are refused; fields that we do not read may be there.
func Infrastructure(text []byte) (*configv1.Infrastructure, error) {
	raw, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, err
	}
	infra := &configv1.Infrastructure{}
	if err := yaml.Unmarshal(raw, infra); err != nil {
		return nil, err
	}
	want := metav1.TypeMeta{APIVersion: configv1.GroupVersion.String(), Kind: "Infrastructure"}
	return infra, checkKind(infra.TypeMeta, want)
}

// configMap reads a manifest of a ConfigMap, strictly.
func configMap(text []byte) (*corev1.ConfigMap, error) {
	cm := &corev1.ConfigMap{}
	if err := yaml.UnmarshalStrict(text, cm); err != nil {
		return nil, err
	}
	if err := checkKind(cm.TypeMeta, metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}); err != nil {
		return nil, err
	}
	if cm.Data == nil {
		return nil, errors.New("unable to find Data field in provided ConfigMap")
	}
	return cm, nil
}

func checkKind(have, want metav1.TypeMeta) error {
	if have != want {
		return fmt.Errorf("it is the kind %q of %q; want %s of %s", have.Kind, have.APIVersion, want.Kind, want.APIVersion)
	}
	return nil
}

// Images reads a file with a manifest of a ConfigMap with images.
func Images(file string) (bundle.Images, error) {
	text, err := read(file)
	if err != nil {
		return nil, err
	}
	cm, err := configMap(text)
	if err != nil {
		return nil, err
	}
	name := cm.Namespace + "/" + cm.Name
	content, has := cm.Data[ImagesKey]
	if !has {
		return nil, fmt.Errorf("unable to find images key %q in ConfigMap %s", ImagesKey, name)
	}
	images, err := bundle.ParseImages([]byte(content))
	if err != nil {
		return nil, fmt.Errorf("unable to decode images content from ConfigMap %s: %w", name, err)
	}
	return images, nil
}

// cloudConfig returns the cloud's configuration out of a manifest of a
// ConfigMap. It may be empty: then there is none.
func cloudConfig(text []byte, key string) (string, error) {
	cm, err := configMap(text)
	if err != nil {
		return "", err
	}
	if content, has := cm.Data[bundle.CloudConfigKey]; has {
		return content, nil
	}
	content, has := cm.Data[key]
	if !has && key != "" {
		return "", fmt.Errorf("key %s specified in infra resource does not exist in source configmap %s/%s", key, cm.Namespace, cm.Name)
	}
	return content, nil
}

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

// prune removes resources that are empty, which is how Go writes those that nobody set.
func prune(value any) {
	switch v := value.(type) {
	case map[string]any:
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
