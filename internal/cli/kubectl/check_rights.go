// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/outrigger/outrigger/internal/cli/doctor"
)

// right is one thing that somebody may need to do: the resourceAttributes of a review.
type right struct {
	Verb        string `json:"verb"`
	Group       string `json:"group"`
	Resource    string `json:"resource"`
	Subresource string `json:"subresource"`
	Namespace   string `json:"namespace"`
	Name        string `json:"name"`
}

func (r right) String() string {
	return r.Verb + " " + r.Resource + prefix("/", r.Subresource) + prefix(".", r.Group)
}

// review is a SelfSubjectAccessReview, or a SubjectAccessReview when it names
// somebody.
type review struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       struct {
		ResourceAttributes right    `json:"resourceAttributes"`
		User               string   `json:"user,omitempty"`
		Groups             []string `json:"groups,omitempty"`
	} `json:"spec"`
	Status struct {
		Allowed bool `json:"allowed"`
	} `json:"status"`
}

// missing returns those of the rights that user lacks; the empty user is the
// one who asks.
func (k *checker) missing(ctx context.Context, user string, rights []right) ([]string, error) {
	var lacks []string
	for _, r := range rights {
		ask := review{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectAccessReview"}
		if user != "" {
			ask.Kind, ask.Spec.User = "SubjectAccessReview", user
			ask.Spec.Groups = []string{"system:serviceaccounts", "system:serviceaccounts:" + k.app.system, "system:authenticated"}
		}
		ask.Spec.ResourceAttributes = r
		if err := k.c.Create(ctx, api(authorization, "", strings.ToLower(ask.Kind)+"s"), &ask, &ask); err != nil {
			return nil, err
		}
		if !ask.Status.Allowed {
			lacks = append(lacks, r.String())
		}
	}
	return lacks, nil
}

const (
	peerPodsGroup = "confidentialcontainers.org"
	rbacGroup     = "rbac.authorization.k8s.io"
)

// mayInstall asks for what applying the manifests needs.
func (k *checker) mayInstall(ctx context.Context) doctor.Result {
	ns := k.app.system
	rights := []right{
		{"create", "", "namespaces", "", "", ""},
		{"create", "apiextensions.k8s.io", "customresourcedefinitions", "", "", ""},
		{"create", rbacGroup, "clusterroles", "", "", ""}, {"create", rbacGroup, "clusterrolebindings", "", "", ""},
		{"create", rbacGroup, "roles", "", ns, ""}, {"create", rbacGroup, "rolebindings", "", ns, ""},
		{"create", "node.k8s.io", "runtimeclasses", "", "", ""},
		{"create", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "", "", ""},
		{"create", "apps", "daemonsets", "", ns, ""}, {"create", "apps", "deployments", "", ns, ""},
		{"create", "", "configmaps", "", ns, ""}, {"create", "", "secrets", "", ns, ""}, {"create", "", "services", "", ns, ""},
		{"create", "", "serviceaccounts", "", ns, ""}, {"create", "networking.k8s.io", "networkpolicies", "", ns, ""},
		{"create", "policy", "poddisruptionbudgets", "", ns, ""},
	}
	lacks, err := k.missing(ctx, "", rights)
	switch {
	case err != nil:
		return doctor.Warn("", "it cannot be found out what you may do: %v", err)
	case len(lacks) > 0:
		return doctor.Fail("install as a cluster administrator", "you may not %s", strings.Join(lacks, ", "))
	}
	return doctor.Good("you may make all that an installation has")
}

// mayLook asks for what this program reads.
func (k *checker) mayLook(ctx context.Context) doctor.Result {
	ns := k.app.system
	lacks, err := k.missing(ctx, "", []right{
		{"list", peerPodsGroup, "peerpods", "", "", ""}, {"list", "", "pods", "", "", ""}, {"list", "", "events", "", "", ""},
		{"list", "", "nodes", "", "", ""}, {"get", "", "configmaps", "", ns, configMapName}, {"get", "", "pods", "log", ns, ""},
	})
	switch {
	case err != nil:
		return doctor.Warn("", "it cannot be found out what you may do: %v", err)
	case len(lacks) > 0:
		return doctor.Warn("ask for these rights, or go on with less", "parts of this program will not work for you: you may not %s", strings.Join(lacks, ", "))
	}
	return doctor.Good("you may see all that this program shows")
}

// daemonRights asks for what the daemons live on.
func (k *checker) daemonRights(ctx context.Context) doctor.Result {
	ns := k.app.system
	needs := map[string][]right{
		adaptorAccount: {
			{"create", peerPodsGroup, "peerpods", "", "default", ""}, {"patch", peerPodsGroup, "peerpods", "", "default", ""},
			{"patch", peerPodsGroup, "peerpods", "status", "default", ""}, {"delete", peerPodsGroup, "peerpods", "", "default", ""},
			{"list", peerPodsGroup, "peerpods", "", "", ""}, {"get", "", "pods", "", "default", ""},
			{"create", "", "events", "", "default", ""}, {"patch", "", "nodes", "status", "", ""},
		},
		controllerName: {
			{"watch", peerPodsGroup, "peerpods", "", "", ""}, {"patch", peerPodsGroup, "peerpods", "", "default", ""},
			{"get", "", "configmaps", "", ns, configMapName}, {"get", "", "secrets", "", ns, secretName},
			{"create", "coordination.k8s.io", "leases", "", ns, ""},
		},
	}
	var all []string
	for _, account := range []string{adaptorAccount, controllerName} {
		lacks, err := k.missing(ctx, "system:serviceaccount:"+ns+":"+account, needs[account])
		if apierrors.IsForbidden(err) {
			return doctor.Warn("use an account that may create subjectaccessreviews", "it cannot be found out what the daemons may do: %v", err)
		}
		if err != nil {
			return doctor.Warn("", "it cannot be found out what the daemons may do: %v", err)
		}
		if len(lacks) > 0 {
			all = append(all, fmt.Sprintf("%s may not %s", account, strings.Join(lacks, ", ")))
		}
	}
	if len(all) > 0 {
		return doctor.Fail(applyHint+", which has the roles", "%s", strings.Join(all, "; "))
	}
	return doctor.Good("adaptor and controller may do what they need")
}
