// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Rendered is what a bundle is for one cluster: the cluster's objects, and those for
// the machine that it is installed from.
type Rendered struct{ Resources, Bootstrap []client.Object }

// Resources returns only [Rendered].Resources. It does not read bootstrap/.
func (b *Bundle) Resources(v Values) ([]client.Object, error) {
	rendered, err := b.render(v, true, false)
	return rendered.Resources, err
}

// BootstrapResources returns only [Rendered].Bootstrap. It needs only their images.
func (b *Bundle) BootstrapResources(v Values) ([]client.Object, error) {
	rendered, err := b.render(v, false, true)
	return rendered.Bootstrap, err
}

// Render makes the objects for a cluster, accounts and rights before the pods
// that need them. All errors are returned at once.
func (b *Bundle) Render(v Values) (Rendered, error) { return b.render(v, true, true) }

func (b *Bundle) render(v Values, cluster, machine bool) (out Rendered, err error) {
	if v, err = v.complete(); err != nil {
		return Rendered{}, err
	}
	if !b.For(v.Flavor) {
		return Rendered{}, fmt.Errorf("bundle %s is not for %s clusters: flavors in %s does not have it", b.Name, v.Flavor, MetadataFile)
	}
	r := &renderer{Bundle: b, values: v, data: v.data(&b.Metadata), missing: map[string]bool{}, sources: map[client.Object]string{}}
	var errs []error
	if cluster {
		out.Resources, err = r.resources()
		errs = append(errs, err, r.duplicates(out.Resources))
	}
	if machine {
		out.Bootstrap, err = r.files(r.in(bootstrap), true)
		errs = append(errs, err, r.duplicates(out.Bootstrap))
	}
	if len(r.missing) > 0 {
		return Rendered{}, fmt.Errorf("%s: %w: %s", r.Name, ErrMissedImages, strings.Join(slices.Sorted(maps.Keys(r.missing)), ", "))
	}
	if err := errors.Join(errs...); err != nil {
		return Rendered{}, fmt.Errorf("bundle %s: %w", b.Name, err)
	}
	return out, nil
}

// rank returns the position of an object in the order of creation: accounts come
// before the pods that use them.
func rank(o client.Object) int {
	switch {
	case o.GetObjectKind().GroupVersionKind().Kind == "ServiceAccount":
		return 0
	case PodSpec(o) != nil:
		return 2
	}
	return 1
}

// resources returns the bundle's objects and then those that each platform gets. An
// account of the bundle replaces one of the latter with the same name: its annotations
// give the pods their identity at the cloud.
func (r *renderer) resources() ([]client.Object, error) {
	own, err := r.files(slices.Concat(r.in(assets), r.in(string(r.values.Flavor))), false)
	added, failed := r.files(r.added(), false)
	added = slices.DeleteFunc(added, func(o client.Object) bool {
		_, is := o.(*corev1.ServiceAccount)
		return is && slices.ContainsFunc(own, func(b client.Object) bool { return key(b) == key(o) })
	})
	all := slices.Concat(own, added)
	slices.SortStableFunc(all, func(a, b client.Object) int { return rank(a) - rank(b) })
	return all, errors.Join(err, failed)
}

func (b *Bundle) in(folder string) []file {
	var files []file
	for _, f := range b.manifests {
		if f.folder == folder {
			files = append(files, f)
		}
	}
	return files
}

func (r *renderer) files(files []file, bootstrap bool) (all []client.Object, err error) {
	var errs []error
	for _, f := range files {
		objects, err := r.objects(f, bootstrap)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", f.path(), err))
		}
		for _, o := range objects {
			r.sources[o] = f.source()
		}
		all = append(all, objects...)
	}
	return all, errors.Join(errs...)
}

// objects returns the objects of a file.
func (r *renderer) objects(f file, bootstrap bool) ([]client.Object, error) {
	t, err := parseFile(f)
	if err != nil {
		return nil, err
	}
	text := f.text
	if t != nil {
		if text, err = execute(t, "", r.data); err != nil {
			return nil, err
		}
	}
	docs, err := documents(renamed(text, r.values.Namespace))
	if err != nil {
		return nil, err
	}
	var objects []client.Object
	for _, doc := range docs {
		o, err := r.object(doc, bootstrap)
		if err != nil {
			return nil, err
		}
		objects = append(objects, o)
	}
	return objects, nil
}

func (r *renderer) object(doc document, bootstrap bool) (client.Object, error) {
	doc, err := r.onBase(doc)
	if err != nil {
		return nil, err
	}
	o, err := doc.decode()
	if err != nil {
		return nil, err
	}
	_, isPod := o.(*corev1.Pod)
	_, isConfig := o.(*corev1.ConfigMap)
	switch {
	case bootstrap && !isPod && !isConfig:
		return nil, fmt.Errorf("%s: the machine of the bootstrap has a kubelet and no API server: only Pods and ConfigMaps can be there", doc)
	case !bootstrap && isPod:
		return nil, fmt.Errorf("%s: nobody would start it again; want a Deployment or DaemonSet, or put it into bootstrap/", doc)
	}
	// What follows are the values that manifests do not name.
	if err := errors.Join(r.setNamespace(o), r.setImages(o)); err != nil {
		return nil, fmt.Errorf("%s: %w", doc, err)
	}
	r.setProxy(o)
	r.setIdentity(o)
	if d, is := o.(*appsv1.Deployment); is && r.values.SingleReplica {
		d.Spec.Replicas = ptr.To[int32](1)
	}
	return o, nil
}

// added returns the files that each platform gets.
func (r *renderer) added() []file {
	var files []file
	for _, folder := range []string{"added", path.Join("added", string(r.values.Flavor))} {
		entries, err := fs.ReadDir(own, folder)
		if err != nil {
			continue // nothing for this flavor
		}
		for _, e := range entries {
			if !e.IsDir() {
				files = append(files, file{folder: folder, name: e.Name()})
			}
		}
	}
	return files
}

func (r *renderer) duplicates(objects []client.Object) error {
	seen := map[string]string{}
	var errs []error
	for _, o := range objects {
		name, in := key(o), r.sources[o]
		switch other, twice := seen[name]; {
		case twice && other == in:
			errs = append(errs, fmt.Errorf("%s is there twice, in %s", name, in))
		case twice:
			errs = append(errs, fmt.Errorf("%s is there twice, in %s and in %s", name, other, in))
		}
		seen[name] = in
	}
	return errors.Join(errs...)
}

func key(o client.Object) string {
	name := client.ObjectKeyFromObject(o).String()
	return o.GetObjectKind().GroupVersionKind().Kind + " " + strings.TrimPrefix(name, "/")
}

// renamed puts the namespace of the installation wherever a text names the
// default one: in fields, flags and expressions alike, but not in longer names, such
// as that of the operator's namespace, which begins with it.
func renamed(text, namespace string) string {
	inName := func(r rune) bool { return r == '-' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9' }
	parts := strings.Split(text, DefaultNamespace)
	var out strings.Builder
	for i, after := range parts {
		switch {
		case i == 0:
		case strings.TrimRightFunc(parts[i-1], inName) == parts[i-1] && strings.TrimLeftFunc(after, inName) == after:
			out.WriteString(namespace)
		default:
			out.WriteString(DefaultNamespace)
		}
		out.WriteString(after)
	}
	return out.String()
}

// setNamespace puts an object into the namespace of the installation, whichever
// its manifest names, except for kube-system. What a RoleBinding names of its
// own namespace goes with it.
func (r *renderer) setNamespace(o client.Object) error {
	if slices.Contains(clusterKinds, o.GetObjectKind().GroupVersionKind().Kind) {
		if o.GetNamespace() != "" {
			return fmt.Errorf("metadata.namespace %q: the kind has none", o.GetNamespace())
		}
		return r.checkSubjects(o)
	}
	was := o.GetNamespace()
	if was != SystemNamespace {
		o.SetNamespace(r.values.Namespace)
	}
	if binding, ok := o.(*rbacv1.RoleBinding); ok && was != SystemNamespace {
		for i := range binding.Subjects {
			if s := &binding.Subjects[i]; s.Kind == rbacv1.ServiceAccountKind && s.Namespace == was {
				s.Namespace = r.values.Namespace
			}
		}
	}
	return r.checkSubjects(o)
}

// checkSubjects refuses accounts of other namespaces: subjects of rights are
// never guessed.
func (r *renderer) checkSubjects(o client.Object) error {
	var subjects []rbacv1.Subject
	switch o := o.(type) {
	case *rbacv1.RoleBinding:
		subjects = o.Subjects
	case *rbacv1.ClusterRoleBinding:
		subjects = o.Subjects
	}
	for i := range subjects {
		s := &subjects[i]
		if s.Kind != rbacv1.ServiceAccountKind {
			continue
		}
		if s.Namespace == "" {
			s.Namespace = r.values.Namespace
		}
		if s.Namespace != r.values.Namespace && s.Namespace != SystemNamespace {
			return fmt.Errorf("subjects[%d].namespace %q: a bundle may give rights to accounts of %s, which stands for the namespace of the installation, and of %s; "+
				"leave the namespace out, or use {{ .namespace }} in a .tmpl file", i, s.Namespace, DefaultNamespace, SystemNamespace)
		}
	}
	return nil
}
