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
// default one: in fields, flags and expressions alike.
func renamed(text, namespace string) string {
	if namespace == DefaultNamespace {
		return text
	}
	var out strings.Builder
	for {
		at := strings.Index(text, DefaultNamespace)
		if at < 0 {
			break
		}
		end := at + len(DefaultNamespace)
		if whole(text, at, end) {
			out.WriteString(text[:at] + namespace)
		} else {
			out.WriteString(text[:end])
		}
		text = text[end:]
	}
	return out.String() + text
}

// whole tells whether a name ends where it is said to: not so in the name of the
// operator's namespace, which begins with it.
func whole(text string, at, end int) bool {
	inName := func(c byte) bool { return c == '-' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }
	return (at == 0 || !inName(text[at-1])) && (end == len(text) || !inName(text[end]))
}

// setNamespace gives an object without a namespace that of the installation,
// and refuses any other but kube-system.
func (r *renderer) setNamespace(o client.Object) error {
	if slices.Contains(clusterKinds, o.GetObjectKind().GroupVersionKind().Kind) {
		if o.GetNamespace() != "" {
			return fmt.Errorf("metadata.namespace %q: the kind has none", o.GetNamespace())
		}
		return r.checkSubjects(o)
	}
	if o.GetNamespace() == "" {
		o.SetNamespace(r.values.Namespace)
	}
	if err := r.checkOwn("metadata.namespace", o.GetNamespace()); err != nil {
		return err
	}
	return r.checkSubjects(o)
}

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
		if err := r.checkOwn(fmt.Sprintf("subjects[%d].namespace", i), s.Namespace); err != nil {
			return err
		}
	}
	return nil
}

func (r *renderer) checkOwn(field, namespace string) error {
	if namespace == r.values.Namespace || namespace == SystemNamespace {
		return nil
	}
	return fmt.Errorf("%s %q: a bundle may have objects in %s, which stands for the namespace of the installation, and in %s; leave the namespace out, or use {{ .namespace }} in a .tmpl file",
		field, namespace, DefaultNamespace, SystemNamespace)
}
