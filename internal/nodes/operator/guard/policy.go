// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Name is that of policy, binding and ConfigMap.
const Name = "ccm-node-deletion-guard"

// Annotation is on a Node that may be deleted: its value is the Node's UID, which
// is a ticket, or Allow, which a person has set.
const (
	Annotation = "ccm.outrigger.dev/deletion"
	Allow      = "allow"
)

// NodeController is the account with which the manager's controllers of Nodes
// work under --use-service-account-credentials (k8s.io/cloud-provider/names).
const NodeController = "system:serviceaccount:kube-system:node-controller"

// Policy returns the objects of the admission policy that refuses deletions by these
// users without a ticket. It has no parameters: for those the API server requires that
// whoever creates the policy may read all ConfigMaps of the cluster, and it looks them
// up before it checks who deletes.
func Policy(users ...string) []client.Object {
	meta := metav1.ObjectMeta{Name: Name}
	return []client.Object{
		&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: policySpec(users)},
		&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		}},
	}
}

func policySpec(users []string) admissionv1.ValidatingAdmissionPolicySpec {
	quoted := make([]string, len(users))
	for i, u := range users {
		quoted[i] = strconv.Quote(u)
	}
	fail, reason := admissionv1.Fail, metav1.StatusReasonForbidden
	nodes := admissionv1.NamedRuleWithOperations{RuleWithOperations: admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Delete},
		Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"nodes"}},
	}}
	return admissionv1.ValidatingAdmissionPolicySpec{
		FailurePolicy:    &fail,
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{nodes}},
		MatchConditions: []admissionv1.MatchCondition{{
			Name: "by-a-cloud-controller-manager", Expression: "request.userInfo.username in [" + strings.Join(quoted, ", ") + "]",
		}},
		Variables: []admissionv1.Variable{{
			Name: "ticket", Expression: fmt.Sprintf("has(oldObject.metadata.annotations) && '%[1]s' in oldObject.metadata.annotations ? oldObject.metadata.annotations['%[1]s'] : ''", Annotation),
		}},
		Validations: []admissionv1.Validation{{
			Expression: fmt.Sprintf("variables.ticket == '%s' || variables.ticket == oldObject.metadata.uid", Allow),
			MessageExpression: fmt.Sprintf("'the deletion of Node ' + oldObject.metadata.name + ' is guarded, its Events say why; to let it pass: kubectl annotate node ' + "+
				"oldObject.metadata.name + ' %s=%s'", Annotation, Allow),
			Reason: &reason,
		}},
	}
}
