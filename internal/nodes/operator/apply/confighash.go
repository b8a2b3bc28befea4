// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// hashPath is where the sum of what pods read is.
var hashPath = []string{"spec", "template", "metadata", "annotations", ConfigHashAnnotation}

// source is a ConfigMap or Secret that pods read.
type source struct{ kind, name string }

// sources are true when the pods start without them too.
type sources map[source]bool

// addConfigHash puts the sum of all ConfigMaps and Secrets that the pods read
// into their template, so that a change of one rolls them. What is missing is
// named; nothing is put into the template then.
func (a *Applier) addConfigHash(ctx context.Context, o *unstructured.Unstructured) (missing []string, err error) {
	all, err := sourcesOf(o)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	data := struct {
		ConfigMaps map[string]map[string]string `json:"configMaps"`
		Secrets    map[string]map[string][]byte `json:"secrets"`
	}{map[string]map[string]string{}, map[string]map[string][]byte{}}
	for s, optional := range all {
		key := client.ObjectKey{Namespace: o.GetNamespace(), Name: s.name}
		var there bool
		if s.kind == "ConfigMap" {
			var content map[string]string
			if content, there, err = a.configMap(ctx, key); there {
				data.ConfigMaps[s.name] = content
			}
		} else {
			var secret corev1.Secret
			if there, err = a.read(ctx, key, &secret); there {
				data.Secrets[s.name] = secret.Data
			}
		}
		if err != nil {
			return nil, err
		}
		if !there && !optional {
			missing = append(missing, s.kind+" "+key.String())
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return missing, nil
	}
	return nil, unstructured.SetNestedField(o.Object, sum(data), hashPath...)
}

// keepConfigHash leaves the sum that is there: pods that run do not end because
// somebody removes what new ones could not start without, maybe to make it
// again.
func (a *Applier) keepConfigHash(ctx context.Context, o *unstructured.Unstructured) error {
	is, err := a.existing(ctx, o)
	if is == nil || err != nil {
		return err
	}
	hash, has, err := unstructured.NestedString(is.Object, hashPath...)
	if !has || err != nil {
		return err
	}
	return unstructured.SetNestedField(o.Object, hash, hashPath...)
}

// configMap returns the data that a ConfigMap will have after this pass.
func (a *Applier) configMap(ctx context.Context, key client.ObjectKey) (data map[string]string, there bool, err error) {
	if data, ours := a.own[key]; ours {
		return data, true, nil
	}
	// There are two caches with ConfigMaps. The events of this one start a pass; the
	// other may see a change later, when no further pass starts.
	var cm corev1.ConfigMap
	there, err = a.read(ctx, key, &cm)
	return cm.Data, there, err
}

func (a *Applier) read(ctx context.Context, key client.ObjectKey, into client.Object) (bool, error) {
	err := a.Client.Get(ctx, key, into)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// references are the fields of pods that name a ConfigMap or Secret, wherever they are: in
// volumes of all kinds, and in the environment of all containers.
var references = map[string]string{
	"configMap": "ConfigMap", "configMapRef": "ConfigMap", "configMapKeyRef": "ConfigMap",
	"secret": "Secret", "secretRef": "Secret", "secretKeyRef": "Secret",
}

func sourcesOf(o *unstructured.Unstructured) (sources, error) {
	pod, _, err := unstructured.NestedMap(o.Object, "spec", "template", "spec")
	s := sources{}
	s.collect(pod)
	return s, err
}

func (s sources) collect(value any) {
	switch v := value.(type) {
	case []any:
		for _, inner := range v {
			s.collect(inner)
		}
	case map[string]any:
		for field, inner := range v {
			if of, is := inner.(map[string]any); is && references[field] != "" {
				s.add(references[field], of)
			}
			s.collect(inner)
		}
	}
}

// add notes a name: it is optional only if all that read it say so.
func (s sources) add(kind string, of map[string]any) {
	name, named := of["name"].(string)
	if !named {
		name, _ = of["secretName"].(string)
	}
	optional, _ := of["optional"].(bool)
	was, known := s[source{kind, name}]
	s[source{kind, name}] = (was || !known) && optional
}
