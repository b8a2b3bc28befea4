// SPDX-License-Identifier: Apache-2.0

//go:build integration

package cluster

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/kubeapi"
	"github.com/outrigger/outrigger/internal/peerpods/claims"
	realcluster "github.com/outrigger/outrigger/test/cluster"
	teststand "github.com/outrigger/outrigger/test/stand"
)

const (
	adaptorNamespace = "confidential-containers-system"
	adaptorAccount   = "cloud-api-adaptor"
)

// TestOnARealAPIServer plays the scenarios where rules are enforced: schemas,
// finalizers, the adaptor's ClusterRole as it is installed, the node's
// identity.
func TestOnARealAPIServer(t *testing.T) {
	cp, w := realWho(t)
	t.Run("WithoutTheCRD", func(t *testing.T) { withoutTheCRD(t, w) })
	cp.Kubectl(t, "apply", "-k", filepath.Join(base(), "crd"))
	cp.Kubectl(t, "wait", "--for=condition=Established", "crd/peerpods.confidentialcontainers.org", "crd/podvmpools.confidentialcontainers.org")
	t.Run("OwnersEnforced", func(t *testing.T) { ownersEnforced(t, cp) })
	for name, scenario := range scenarios {
		t.Run(name, func(t *testing.T) { scenario(t, w) })
	}
	t.Run("PullSecretForbidden", func(t *testing.T) { secretForbidden(t, w) })
	t.Run("OtherNodesSecrets", func(t *testing.T) { otherNodesSecrets(t, w) })
	t.Run("APIServerKilled", func(t *testing.T) { apiServerKilled(t, cp, w) })
	t.Run("RoleForOneNamespace", func(t *testing.T) { roleForOneNamespace(t, cp, w) })
}

// ownerEnforcement is on in OpenShift: who sets blockOwnerDeletion needs
// "update" on the finalizers of the owner.
const ownerEnforcement = "--enable-admission-plugins=OwnerReferencesPermissionEnforcement"

// ownersEnforced shows that the plugin is there: what the adaptor's PeerPods
// pass is refused to somebody who has the other rights only.
func ownersEnforced(t *testing.T, cp *realcluster.ControlPlane) {
	cp.Kubectl(t, "create", "clusterrole", "no-finalizers", "--verb=create", "--resource=peerpods.confidentialcontainers.org")
	cp.Kubectl(t, "create", "clusterrolebinding", "no-finalizers", "--clusterrole=no-finalizers", "--user=somebody")
	cmd := cp.Command("create", "--as=somebody", "-f", "-")
	cmd.Stdin = strings.NewReader(`{"apiVersion": "confidentialcontainers.org/v1alpha1", "kind": "PeerPod", "metadata": {"name": "x", "namespace": "default",
		"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1", "controller": true, "blockOwnerDeletion": true}]}, "spec": {}}`)
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "blockOwnerDeletion") {
		t.Errorf("%v: %s", err, out)
	}
}

// BenchmarkTakeVMAtAServer is [BenchmarkTakeVM] with a real API server, whose own time, and
// that of its store, is most of it.
func BenchmarkTakeVMAtAServer(b *testing.B) {
	cp, w := realWho(b)
	cp.Kubectl(b, "apply", "-k", filepath.Join(base(), "crd"))
	cp.Kubectl(b, "wait", "--for=condition=Established", "crd/peerpods.confidentialcontainers.org", "crd/podvmpools.confidentialcontainers.org")
	benchmarkTakeVM(b, w.admin)
}

func base() string { return filepath.Join(teststand.Root(), "deploy", "base") }

func realWho(t testing.TB) (*realcluster.ControlPlane, who) {
	cp := realcluster.StartControlPlane(t, realcluster.ControlPlaneOptions{APIServer: []string{ownerEnforcement}})
	cp.Kubectl(t, "create", "namespace", adaptorNamespace)
	cp.Kubectl(t, "apply", "-n", adaptorNamespace, "-f", filepath.Join(base(), "adaptor", "rbac.yaml"))
	cp.Apply(t, `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "`+nodeName+`"}}`)
	return cp, who{
		admin:   cp.RESTConfig(),
		adaptor: cp.ServiceAccount(t, adaptorNamespace, adaptorAccount).RESTConfig(),
		node:    cp.NewUser(t, "system:node:"+nodeName, "system:nodes").RESTConfig(),
	}
}

// secretForbidden: the adaptor's own identity reads no Secret, and says so.
func secretForbidden(t *testing.T, w who) {
	s := newStand(t, w, nil)
	s.secret("private", "kubernetes.io/dockerconfigjson", ".dockerconfigjson", `{"auths":{"r.example":{"auth":"eDp5"}}}`)
	s.pod("denied", withPullSecrets("private"))
	s.run("denied1", "denied")
	if got := s.guestFile("denied1", "/run/peerpod/auth.json"); got != "" {
		t.Errorf("auth.json %s", got)
	}
	if e := s.event("denied", reasonSecretDenied); !strings.Contains(e.Message, "kubectl create role") {
		t.Errorf("event %+v", e)
	}
}

// otherNodesSecrets: as the node it reads what pods of the node use only.
func otherNodesSecrets(t *testing.T, w who) {
	s := newStand(t, w, nil)
	s.secret("elsewhere", "kubernetes.io/dockerconfigjson", ".dockerconfigjson", `{"auths":{"r.example":{"auth":"eDp5"}}}`)
	s.pod("onothernode", withPullSecrets("elsewhere"), func(object map[string]any) {
		object["spec"].(map[string]any)["nodeName"] = "node2"
	})
	asNode, err := kubeapi.New(w.node)
	if err != nil {
		t.Fatal(err)
	}
	if err := asNode.Get(t.Context(), kubeapi.Path(kubeapi.Core, namespace, "secrets", "elsewhere"), nil); !apierrors.IsForbidden(err) {
		t.Errorf("the node reads another node's Secret: %v", err)
	}
}

// apiServerKilled: pods start, stop and fail while there is no API server.
func apiServerKilled(t *testing.T, cp *realcluster.ControlPlane, w who) {
	s := newStand(t, w, nil)
	const pods = 10
	for i := range pods {
		s.pod(fmt.Sprint("killed-", i))
	}
	s.run("k0", "killed-0")
	s.eventually("a PeerPod", func() bool { return s.peerPod("k0", "killed-0") != nil })
	cp.Kill()
	for i := 1; i < pods; i++ {
		s.run(fmt.Sprint("k", i), fmt.Sprint("killed-", i))
	}
	for i := range pods / 2 {
		s.remove(fmt.Sprint("k", i))
		s.wantNoInstancesOf(fmt.Sprint("k", i))
	}
	cp.Start(t)
	for i := range pods {
		s.eventually(fmt.Sprint("the PeerPod of ", i, " is as its sandbox"), func() bool {
			pp := s.peerPod(fmt.Sprint("k", i), fmt.Sprint("killed-", i))
			if i < pods/2 {
				return pp == nil
			}
			return pp != nil && pp.Status.Phase == v1alpha1.PhaseReady && len(pp.OwnerReferences) == 1
		})
	}
	s.event("killed-9", claims.ReasonReady)
	s.eventually("no backlog", func() bool { return s.cluster.Backlog() == 0 && len(s.service.States()) == 1 })
}

// roleForOneNamespace: what the Event of a refusal tells to do helps.
func roleForOneNamespace(t *testing.T, cp *realcluster.ControlPlane, w who) {
	s := newStand(t, w, nil)
	s.secret("granted", "kubernetes.io/dockerconfigjson", ".dockerconfigjson", `{"auths":{"r.example":{"auth":"eDp5"}}}`)
	cp.Kubectl(t, "create", "role", "pull-secrets", "-n", namespace, "--verb=get", "--resource=secrets", "--resource-name=granted")
	cp.Kubectl(t, "create", "rolebinding", "pull-secrets", "-n", namespace, "--role=pull-secrets", "--serviceaccount="+adaptorNamespace+":"+adaptorAccount)
	s.pod("granted", withPullSecrets("granted"))
	asAdaptor, err := kubeapi.New(w.adaptor)
	if err != nil {
		t.Fatal(err)
	}
	s.eventually("the role is in force", func() bool {
		return asAdaptor.Get(t.Context(), kubeapi.Path(kubeapi.Core, namespace, "secrets", "granted"), nil) == nil
	})
	s.run("granted1", "granted")
	if got := s.guestFile("granted1", "/run/peerpod/auth.json"); got != `{"auths":{"r.example":{"auth":"eDp5"}}}` {
		t.Errorf("auth.json %s", got)
	}
}

// withoutTheCRD: a pod runs and its owner is told.
func withoutTheCRD(t *testing.T, w who) {
	s := newStand(t, w, nil)
	s.pod("nocrd")
	s.run("nocrd1", "nocrd")
	if e := s.event("nocrd", reasonClaimFailed); !strings.Contains(e.Message, "CRD") {
		t.Errorf("event %+v", e)
	}
	s.remove("nocrd1")
	s.eventually("the sandbox is gone", func() bool { return len(s.service.States()) == 0 })
}
