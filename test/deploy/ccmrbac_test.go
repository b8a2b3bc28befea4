// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/outrigger/outrigger/internal/nodes/operator/guard"
)

// operand is used of all kinds that a bundle may have.
const (
	operand   = "get list watch create update patch delete"
	applyKind = "internal/nodes/operator/apply/kind.go"
	cached    = "get list watch"
	toConfig  = "internal/nodes/operator/configsync/run.go"
)

// operatorUses is what the operator and config-sync do with each resource, and
// where: verbs, file, code that stands in it. Leases are patched by managers alone. Where a bundle gives a right, the
// operator must have it, whether it uses it or not; those roles are named *-grants.
var operatorUses = map[string][3]string{
	"deployments.apps":                                        {operand, applyKind, `Kind: "Deployment"`},
	"daemonsets.apps":                                         {operand, applyKind, `Kind: "DaemonSet"`},
	"configmaps":                                              {operand, applyKind, `Kind: "ConfigMap"`},
	"services":                                                {operand, applyKind, `Kind: "Service"`},
	"serviceaccounts":                                         {operand, applyKind, `Kind: "ServiceAccount"`},
	"poddisruptionbudgets.policy":                             {operand, applyKind, `Kind: "PodDisruptionBudget"`},
	"roles.rbac.authorization":                                {operand, applyKind, `Kind: "Role"`},
	"rolebindings.rbac.authorization":                         {operand, applyKind, `Kind: "RoleBinding"`},
	"clusterroles.rbac.authorization":                         {operand, applyKind, `Kind: "ClusterRole"`},
	"clusterrolebindings.rbac.authorization":                  {operand, applyKind, `Kind: "ClusterRoleBinding"`},
	"validatingadmissionpolicies.admissionregistration":       {operand, applyKind, `Kind: "ValidatingAdmissionPolicy"`},
	"validatingadmissionpolicybindings.admissionregistration": {operand, applyKind, `Kind: "ValidatingAdmissionPolicyBinding"`},
	"secrets":                            {cached, "internal/nodes/operator/controller/add.go", "&corev1.Secret{}"},
	"pods":                               {cached, "internal/nodes/operator/watchdog/watchdog.go", "corev1.PodList"},
	"leases.coordination":                {cached + " create update patch", "internal/nodes/operator/daemon/leader.go", "LeaderElectionResourceLock"},
	"nodes":                              {cached + " patch", "internal/nodes/operator/guard/guard.go", "g.Client.Patch("},
	"nodes/status":                       {"patch", "internal/nodes/operator/watchdog/watchdog.go", "Status().Patch("},
	"events":                             {"list create patch update", "internal/nodes/operator/watchdog/watchdog.go", "corev1.EventList"},
	"events.events.k8s.io":               {"create patch update", "internal/nodes/operator/controller/add.go", "GetEventRecorder("},
	"tokenreviews.authentication":        {"create", "internal/nodes/operator/controller/run.go", "WithAuthenticationAndAuthorization"},
	"subjectaccessreviews.authorization": {"create", "internal/nodes/operator/controller/run.go", "WithAuthenticationAndAuthorization"},
	"cloudcontrollermanagers.ccm.outrigger.dev":        {cached + " patch", "internal/nodes/operator/controller/ccm.go", "controllerutil.AddFinalizer("},
	"cloudcontrollermanagers/status.ccm.outrigger.dev": {"patch", "internal/nodes/operator/controller/ccm.go", "Status().Patch("},
	"infrastructures.config.openshift.io":              {cached, "internal/nodes/operator/controller/add.go", "&configv1.Infrastructure{}"},
	"featuregates.config.openshift.io":                 {cached, "internal/nodes/operator/controller/add.go", "&configv1.FeatureGate{}"},
	"proxies.config.openshift.io":                      {cached, "internal/nodes/operator/controller/add.go", "&configv1.Proxy{}"},
	"apiservers.config.openshift.io":                   {cached, "internal/nodes/operator/controller/add.go", "&configv1.APIServer{}"},
	"networks.config.openshift.io":                     {cached, toConfig, "&configv1.Network{}"},
	"clusterversions.config.openshift.io":              {"get", "internal/nodes/operator/openshift/openshift.go", "var v configv1.ClusterVersion"},
	"clusteroperators.config.openshift.io":             {cached + " create", "internal/nodes/operator/status/writer.go", "w.Client.Create("},
	"clusteroperators/status.config.openshift.io":      {"patch", "internal/nodes/operator/status/writer.go", "Status().Patch("},
	"kubecontrollermanagers.operator.openshift.io":     {cached, "internal/nodes/operator/controller/add.go", "KubeControllerManagerKind"},
}

// TestOperatorChangesItsOwnAlone: an admission policy guards a cluster from programs
// such as this one, and who may change any role takes rights from everybody.
func TestOperatorChangesItsOwnAlone(t *testing.T) {
	for _, i := range []installation{onKubernetes, onOpenShift} {
		t.Run(i.folder, func(t *testing.T) { changesItsOwnAlone(t, i, parse(t, i.render(t))) })
	}
	t.Run("chart", func(t *testing.T) {
		i := onKubernetes
		i.namespace = "elsewhere"
		changesItsOwnAlone(t, i, parse(t, output(t, tool(t, "helm"), append(ccmChartArgs(), "--namespace", i.namespace)...)))
	})
}

func changesItsOwnAlone(t *testing.T, i installation, installed []*unstructured.Unstructured) {
	ours := map[string][]string{"admissionregistration.k8s.io": {guard.Name}}
	for _, b := range bundlesFor(t, i.flavor) {
		for _, o := range objects(t, b, i) {
			if group := o.GroupVersionKind().Group; o.GetNamespace() == "" && !slices.Contains(ours[group], o.GetName()) {
				ours[group] = append(ours[group], o.GetName())
			}
		}
	}
	changes := map[string]int{}
	for _, o := range installed {
		rules, _ := rulesOf(t, o)
		for _, rule := range rules {
			for _, verb := range []string{"escalate", "bind", "impersonate", "*"} {
				if slices.Contains(rule.Verbs, verb) {
					t.Errorf("%s may %s %v", o.GetName(), verb, rule.Resources)
				}
			}
			changing := slices.ContainsFunc(rule.Verbs, func(v string) bool { return v != "create" && !strings.Contains(cached, v) })
			group := rule.APIGroups
			if o.GetKind() != "ClusterRole" || len(group) != 1 || ours[group[0]] == nil || !changing {
				continue
			}
			changes[group[0]]++
			if want := slices.Sorted(slices.Values(ours[group[0]])); !slices.Equal(rule.ResourceNames, want) {
				t.Errorf("%s changes %v %v; the operator and its bundles have %v", o.GetName(), rule.Resources, rule.ResourceNames, want)
			}
		}
	}
	for group, names := range ours {
		if changes[group] != 1 || len(names) < 2 {
			t.Errorf("%d rules change what is of %s; there are %v", changes[group], group, names)
		}
	}
}

func TestEveryPermissionOfTheOperatorIsUsed(t *testing.T) {
	used := map[string]bool{}
	for _, i := range []installation{onKubernetes, onOpenShift} {
		for _, o := range parse(t, i.render(t)) {
			rules, is := rulesOf(t, o)
			if !is || !strings.HasPrefix(o.GetName(), "ccm-operator") || strings.Contains(o.GetName(), "grants") || strings.HasSuffix(o.GetName(), "metrics-reader") {
				continue
			}
			for _, rule := range own(rules, o.GetNamespace(), i) {
				for _, one := range expand(rule) {
					verb, what, _ := strings.Cut(one, " ")
					what, _, _ = strings.Cut(what, " ")
					u, known := operatorUses[what]
					if !known || !slices.Contains(strings.Fields(u[0]), verb) {
						t.Errorf("%s: %s %s/%s: %q is granted; say in operatorUses what for", i.folder, o.GetKind(), o.GetNamespace(), o.GetName(), one)
					}
					used[verb+" "+what] = true
				}
			}
		}
	}
	for what, u := range operatorUses {
		for verb := range strings.FieldsSeq(u[0]) {
			if !used[verb+" "+what] {
				t.Errorf("%s %s is granted to nobody", verb, what)
			}
		}
		text, err := os.ReadFile(filepath.Join(root, u[1]))
		if err != nil {
			t.Errorf("%s: %v", what, err)
		} else if !strings.Contains(string(text), u[2]) {
			t.Errorf("%s: %s has no %q any more: is it still needed?", what, u[1], u[2])
		}
	}
}

// TestRegressionAKindThatIsThereIsNoEnd: the operator watches CloudControllerManagers
// wherever the kind is, and ended on OpenShift when somebody had installed it.
func TestRegressionAKindThatIsThereIsNoEnd(t *testing.T) {
	for _, i := range []installation{onKubernetes, onOpenShift} {
		var granted []string
		for _, o := range parse(t, i.render(t)) {
			if rules, is := rulesOf(t, o); is && o.GetKind() == "ClusterRole" && o.GetName() == "ccm-operator" {
				for _, rule := range rules {
					granted = append(granted, expand(rule)...)
				}
			}
		}
		for _, want := range []string{"list", "watch", "patch"} {
			if !slices.ContainsFunc(granted, func(g string) bool { return strings.HasPrefix(g, want+" cloudcontrollermanagers.ccm.outrigger.dev") }) {
				t.Errorf("%s: the operator may not %s CloudControllerManagers", i.folder, want)
			}
		}
	}
}

// own leaves out what is only given on, which on plain Kubernetes stands among the
// rules for kube-system.
func own(rules []rbacv1.PolicyRule, namespace string, i installation) []rbacv1.PolicyRule {
	if namespace != "kube-system" || i != onKubernetes {
		return rules
	}
	return slices.DeleteFunc(rules, func(r rbacv1.PolicyRule) bool {
		return len(r.ResourceNames) > 0 || slices.Equal(r.Verbs, []string{"create"})
	})
}
