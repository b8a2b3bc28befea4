// SPDX-License-Identifier: Apache-2.0

// Package manifest reads pods of Kubernetes from YAML for `outrigger play`. A field that would have no effect is an
// error by its path.
package manifest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// maxFile bounds a manifest, in bytes; an API server takes 3 MiB.
const maxFile = 3 << 20

// Pod is a pod with the data of the ConfigMaps and Secrets in its file.
type Pod struct {
	corev1.Pod
	ConfigMaps, Secrets map[string]map[string][]byte
}

// supported are the paths of a Pod's fields that have an effect, without indices. A star stands for all beneath.
var supported = slices.Concat(strings.Fields(`apiVersion kind metadata.name metadata.namespace metadata.labels.* metadata.annotations.*
	spec.restartPolicy spec.dnsPolicy spec.hostname spec.terminationGracePeriodSeconds spec.securityContext.runAsUser spec.securityContext.runAsGroup
	spec.securityContext.runAsNonRoot spec.volumes.name spec.volumes.emptyDir.medium spec.volumes.emptyDir.sizeLimit
	spec.volumes.configMap.name spec.volumes.configMap.items.key spec.volumes.configMap.items.path spec.volumes.configMap.optional
	spec.volumes.secret.secretName spec.volumes.secret.items.key spec.volumes.secret.items.path spec.volumes.secret.optional
	spec.volumes.hostPath.path`), container("spec.containers."), container("spec.initContainers."))

func container(prefix string) (all []string) {
	fields := strings.Fields(`name image imagePullPolicy command args workingDir env.name env.value env.valueFrom.configMapKeyRef.*
		env.valueFrom.secretKeyRef.* env.valueFrom.fieldRef.fieldPath envFrom.prefix envFrom.configMapRef.* envFrom.secretRef.*
		ports.name ports.containerPort ports.protocol resources.limits.cpu resources.limits.memory
		resources.requests.cpu resources.requests.memory volumeMounts.name volumeMounts.mountPath volumeMounts.readOnly volumeMounts.subPath
		securityContext.runAsUser securityContext.runAsGroup securityContext.runAsNonRoot securityContext.readOnlyRootFilesystem
		securityContext.allowPrivilegeEscalation securityContext.capabilities.add securityContext.capabilities.drop`)
	if prefix == "spec.containers." { // an init container ends by itself, and its ports are not passed on
		fields = append(fields, "ports.hostPort", "ports.hostIP")
		for _, probe := range []string{"livenessProbe.", "readinessProbe.", "startupProbe."} {
			for _, field := range strings.Fields(`exec.command httpGet.path httpGet.port httpGet.scheme httpGet.httpHeaders.* tcpSocket.port
				initialDelaySeconds periodSeconds timeoutSeconds failureThreshold successThreshold`) {
				fields = append(fields, probe+field)
			}
		}
	}
	for _, field := range fields {
		all = append(all, prefix+field)
	}
	return all
}

// Read reads one Pod, and the ConfigMaps and Secrets that it uses.
func Read(r io.Reader) (*Pod, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("a manifest has at most %d bytes", maxFile)
	}
	p := &Pod{ConfigMaps: map[string]map[string][]byte{}, Secrets: map[string]map[string][]byte{}}
	for documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if err := p.add(document); err != nil {
			return nil, err
		}
	}
	if p.Kind == "" {
		return nil, errors.New("there is no Pod in it")
	}
	return p, p.check()
}

// add takes one document.
func (p *Pod) add(document []byte) error {
	data, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return err
	}
	var any map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &any); err != nil {
		return fmt.Errorf("a document is not an object: %w", err)
	}
	if len(any) == 0 {
		return nil // only comments
	}
	switch kind := fmt.Sprint(any["apiVersion"], " ", any["kind"]); kind {
	case "v1 Pod":
		if p.Kind != "" {
			return errors.New("there are several Pods; each needs a file of its own")
		}
		if err := strict(data, &p.Pod); err != nil {
			return err
		}
		return effects("", "", any)
	case "v1 ConfigMap":
		var c corev1.ConfigMap
		if err := strict(data, &c); err != nil {
			return err
		}
		p.ConfigMaps[c.Name] = merged(c.BinaryData, c.Data)
	case "v1 Secret":
		var s corev1.Secret
		if err := strict(data, &s); err != nil {
			return err
		}
		p.Secrets[s.Name] = merged(s.Data, s.StringData)
	default:
		if any["apiVersion"] == nil || any["kind"] == nil {
			return errors.New("a document has no apiVersion or no kind: want v1 and Pod, ConfigMap or Secret")
		}
		return fmt.Errorf("kind %s: want v1 Pod, ConfigMap or Secret; others need a cluster", kind)
	}
	return nil
}

func merged(data map[string][]byte, text map[string]string) map[string][]byte {
	all := maps.Clone(data)
	if all == nil {
		all = map[string][]byte{}
	}
	for key, value := range text {
		all[key] = []byte(value)
	}
	return all
}

// strict decodes and refuses unknown fields by their path.
func strict(data []byte, into any) error {
	unknown, err := kjson.UnmarshalStrict(data, into)
	return errors.Join(append([]error{err}, unknown...)...)
}

// effects returns an error for each field that would have no effect. What asks for nothing has none to have.
func effects(path, shown string, value any) error {
	var errs []error
	switch v := value.(type) {
	case map[string]any:
		item := strings.HasSuffix(shown, "]") || strings.HasPrefix(path, "spec.volumes.") // which asks for something even if it is empty
		if len(v) == 0 && (!item || slices.ContainsFunc(supported, func(s string) bool { return strings.HasPrefix(s, path+".") })) {
			return nil // affinity: {}, emptyDir: {}
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			errs = append(errs, effects(strings.TrimPrefix(path+"."+key, "."), strings.TrimPrefix(shown+"."+key, "."), v[key]))
		}
		if len(v) > 0 {
			return errors.Join(errs...)
		}
	case []any:
		for i, item := range v {
			errs = append(errs, effects(path, fmt.Sprintf("%s[%d]", shown, i), item))
		}
		return errors.Join(errs...)
	case nil:
		return nil
	case bool:
		if !v && path != "spec.hostUsers" { // that asks for a user namespace
			return nil
		}
	}
	if slices.ContainsFunc(supported, func(s string) bool {
		beneath, star := strings.CutSuffix(s, "*")
		return s == path || star && strings.HasPrefix(path, beneath)
	}) {
		return nil
	}
	return fmt.Errorf("%s: it has no effect here; remove it", shown)
}

// Volume returns the volume of a mount.
func (p *Pod) Volume(name string) (*corev1.Volume, error) {
	for i := range p.Spec.Volumes {
		if v := &p.Spec.Volumes[i]; v.Name == name {
			return v, nil
		}
	}
	return nil, fmt.Errorf("volumeMounts: volume %q is not in spec.volumes", name)
}

// Files returns the files of a volume that is a ConfigMap or a Secret, by path in it; nil for other volumes.
func (p *Pod) Files(m corev1.VolumeMount) (map[string][]byte, error) {
	v, err := p.Volume(m.Name)
	if err != nil {
		return nil, err
	}
	var data map[string][]byte
	var items []corev1.KeyToPath
	var optional *bool
	switch {
	case v.ConfigMap != nil:
		items, optional = v.ConfigMap.Items, v.ConfigMap.Optional
		data, err = find("ConfigMap", p.ConfigMaps, v.ConfigMap.Name, optional)
	case v.Secret != nil:
		items, optional = v.Secret.Items, v.Secret.Optional
		data, err = find("Secret", p.Secrets, v.Secret.SecretName, optional)
	case m.SubPath != "" && (v.EmptyDir == nil || !filepath.IsLocal(m.SubPath)):
		return nil, fmt.Errorf("volumeMounts: subPath %q of volume %q: it has to be a path in an emptyDir, or a file of a ConfigMap or Secret", m.SubPath, m.Name)
	default:
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	if len(items) == 0 {
		maps.Copy(files, data)
	}
	for _, item := range items {
		content, ok := data[item.Key]
		switch {
		case strings.Contains("/"+item.Path+"/", "/../") || strings.HasPrefix(item.Path, "/"):
			return nil, fmt.Errorf("volume %q: path %q leads out of the volume", m.Name, item.Path)
		case ok:
			files[item.Path] = content
		case optional == nil || !*optional:
			return nil, fmt.Errorf("volume %q: key %q not found", m.Name, item.Key)
		}
	}
	if _, ok := files[m.SubPath]; m.SubPath != "" && !ok {
		return nil, fmt.Errorf("volume %q has no file %q", m.Name, m.SubPath)
	}
	return files, nil
}

func find(kind string, all map[string]map[string][]byte, name string, optional *bool) (map[string][]byte, error) {
	data, ok := all[name]
	if !ok && (optional == nil || !*optional) {
		return nil, fmt.Errorf("%s %q is not in the file", kind, name)
	}
	return data, nil
}

// Env returns the environment of a container, as KEY=value. fields has the values of fieldRef by path, which
// are empty before the pod runs.
func (p *Pod) Env(c corev1.Container, fields map[string]string) (env []string, err error) {
	values := map[string]string{}
	set := func(key, value string) {
		values[key] = value
		env = append(env, key+"="+value)
	}
	for _, from := range c.EnvFrom {
		var data map[string][]byte
		if from.ConfigMapRef != nil {
			data, err = find("ConfigMap", p.ConfigMaps, from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
		} else if from.SecretRef != nil {
			data, err = find("Secret", p.Secrets, from.SecretRef.Name, from.SecretRef.Optional)
		}
		if err != nil {
			return nil, fmt.Errorf("envFrom: %w", err)
		}
		for _, key := range slices.Sorted(maps.Keys(data)) {
			set(from.Prefix+key, string(data[key]))
		}
	}
	for _, e := range c.Env {
		value, known, err := p.value(e, fields)
		if err != nil {
			return nil, fmt.Errorf("env %s: %w", e.Name, err)
		}
		if known {
			set(e.Name, Expand(value, values))
		}
	}
	return env, nil
}

// fieldPaths are those that fieldRef may name.
var fieldPaths = []string{"metadata.name", "metadata.namespace", "metadata.uid", "status.podIP", "spec.nodeName"}

func (p *Pod) value(e corev1.EnvVar, fields map[string]string) (string, bool, error) {
	if e.ValueFrom == nil {
		return e.Value, true, nil
	}
	if f := e.ValueFrom.FieldRef; f != nil {
		if !slices.Contains(fieldPaths, f.FieldPath) {
			return "", false, fmt.Errorf("valueFrom.fieldRef.fieldPath %q: want one of %s", f.FieldPath, strings.Join(fieldPaths, ", "))
		}
		return fields[f.FieldPath], true, nil
	}
	var data map[string][]byte
	var err error
	var key string
	var optional *bool
	if r := e.ValueFrom.ConfigMapKeyRef; r != nil {
		key, optional = r.Key, r.Optional
		data, err = find("ConfigMap", p.ConfigMaps, r.Name, r.Optional)
	} else if r := e.ValueFrom.SecretKeyRef; r != nil {
		key, optional = r.Key, r.Optional
		data, err = find("Secret", p.Secrets, r.Name, r.Optional)
	}
	value, ok := data[key]
	if err == nil && !ok && (optional == nil || !*optional) {
		err = fmt.Errorf("key %q not found", key)
	}
	return string(value), ok, err
}

var reference = regexp.MustCompile(`\$\$|\$\([A-Za-z_.-][A-Za-z0-9_.-]*\)`)

// ExpandAll replaces $(NAME) in texts by the values of an environment.
func ExpandAll(texts, env []string) (all []string) {
	values := map[string]string{}
	for _, kv := range env {
		key, value, _ := strings.Cut(kv, "=")
		values[key] = value
	}
	for _, text := range texts {
		all = append(all, Expand(text, values))
	}
	return all
}

// Expand replaces $(NAME) by a variable's value, as Kubernetes does: $$ is a dollar, unknown names stay.
func Expand(text string, values map[string]string) string {
	return reference.ReplaceAllStringFunc(text, func(found string) string {
		if found == "$$" {
			return "$"
		}
		if value, ok := values[found[2:len(found)-1]]; ok {
			return value
		}
		return found
	})
}
