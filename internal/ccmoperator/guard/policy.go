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

// Keys of the ConfigMap.
const (
	// modeKey is a person's: "guarded", "allow" or "deny".
	modeKey = "nodeDeletions"
	// openKey lists the "name/uid" of Nodes that may be deleted, with commas.
	openKey = "open"
	// ticketsKey is the JSON of the times at which tickets were given.
	ticketsKey = "tickets"
)

// Values of the key nodeDeletions.
const (
	Guarded, Allow, Deny = "guarded", "allow", "deny"
)

// NodeController is the account with which the manager's controllers of Nodes
// work under --use-service-account-credentials (k8s.io/cloud-provider/names).
const NodeController = "system:serviceaccount:kube-system:node-controller"

// Policy is what refuses deletions without a ticket by these users. The
// ConfigMap is in the namespace; the guard makes it again when it is gone, and
// until then nothing is refused.
func Policy(namespace string, users ...string) []client.Object {
	meta := metav1.ObjectMeta{Name: Name}
	allow := admissionv1.AllowAction
	return []client.Object{
		&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: policySpec(namespace, users)},
		&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: Name,
			ParamRef: &admissionv1.ParamRef{
				Name: Name, Namespace: namespace,
				// The API server asks for the parameter before it looks who deletes:
				// to deny would stop everybody while there is no ConfigMap.
				ParameterNotFoundAction: &allow,
			},
			ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		}},
	}
}

func policySpec(namespace string, users []string) admissionv1.ValidatingAdmissionPolicySpec {
	quoted := make([]string, len(users))
	for i, u := range users {
		quoted[i] = strconv.Quote(u)
	}
	fail := admissionv1.Fail
	nodes := admissionv1.NamedRuleWithOperations{RuleWithOperations: admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Delete},
		Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"nodes"}},
	}}
	reason := metav1.StatusReasonForbidden
	return admissionv1.ValidatingAdmissionPolicySpec{
		FailurePolicy:    &fail,
		ParamKind:        &admissionv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"},
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{nodes}},
		MatchConditions: []admissionv1.MatchCondition{{
			Name: "by-a-cloud-controller-manager", Expression: "request.userInfo.username in [" + strings.Join(quoted, ", ") + "]",
		}},
		Variables: []admissionv1.Variable{
			{Name: "mode", Expression: fmt.Sprintf("'%s' in params.data ? params.data['%s'] : '%s'", modeKey, modeKey, Guarded)},
			{Name: "open", Expression: fmt.Sprintf("'%s' in params.data ? params.data['%s'].split(',') : []", openKey, openKey)},
		},
		Validations: []admissionv1.Validation{{
			Expression: fmt.Sprintf("variables.mode == '%s' || variables.mode != '%s' && (oldObject.metadata.name + '/' + oldObject.metadata.uid) in variables.open", Allow, Deny),
			MessageExpression: fmt.Sprintf("'the deletion of Node ' + oldObject.metadata.name + ' is guarded: ConfigMap %s/%s, which says why; "+
				"to let it pass, set its key %s to %s'", namespace, Name, modeKey, Allow),
			Reason: &reason,
		}},
	}
}
