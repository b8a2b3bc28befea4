// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

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
