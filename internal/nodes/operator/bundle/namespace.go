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
		if isWholeName(text, at, end) {
			out.WriteString(text[:at] + namespace)
		} else {
			out.WriteString(text[:end])
		}
		text = text[end:]
	}
	return out.String() + text
}

// isWholeName reports whether a name ends where it is said to: not so in the name of the
// operator's namespace, which begins with it.
func isWholeName(text string, at, end int) bool {
	inName := func(c byte) bool { return c == '-' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }
	return (at == 0 || !inName(text[at-1])) && (end == len(text) || !inName(text[end]))
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
	return fmt.Errorf("%s %q: a bundle may give rights to accounts of %s, which stands for the namespace of the installation, and of %s; leave the namespace out, or use {{ .namespace }} in a .tmpl file",
		field, namespace, DefaultNamespace, SystemNamespace)
}
