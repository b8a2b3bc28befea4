// SPDX-License-Identifier: Apache-2.0

//go:build integration

package deploy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ccmv1alpha1 "github.com/outrigger/outrigger/api/ccm/v1alpha1"
	crds "github.com/outrigger/outrigger/test/openshift"
	"github.com/outrigger/outrigger/test/stand"
)

// TestOperatorInstallations installs the operator at a real API server, in each
// way, and runs what the Deployment has as the account that it has, with the
// rights that come with it and no others. The tests play kubelets and the
// controllers of workloads.
func TestOperatorInstallations(t *testing.T) {
	plain, shift, helm := onKubernetes.render(t), onOpenShift.render(t), tool(t, "helm")
	s := newSite(t)
	t.Run("manager alone", func(t *testing.T) {
		must(t, dryRun(s.ControlPlane, manifests(t, parse(t, output(t, tool(t, "kustomize"), "build", filepath.Join(root, "deploy/ccm"))))))
	})
	t.Run("without the kinds", func(t *testing.T) { withoutKinds(t, s) })
	t.Run("kubernetes", func(t *testing.T) { s.plain(t, plain) })
	t.Run("helm", func(t *testing.T) { s.helm(t, helm) })
	crds.Install(t, s.ControlPlane)
	s.Apply(t, credentialsRequests)
	s.Kubectl(t, "wait", "--for=condition=Established", "--timeout=3m", "crd/credentialsrequests.cloudcredential.openshift.io")
	for _, name := range []string{"openshift-config", "openshift-config-managed", "openshift-cloud-credential-operator"} {
		s.Kubectl(t, "create", "namespace", name)
	}
	t.Run("openshift", func(t *testing.T) { s.shift(t, shift) })
}

// credentialsRequests are not in OpenShift's module of kinds; this has the fields
// that the credential operator reads.
const credentialsRequests = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: credentialsrequests.cloudcredential.openshift.io}
spec:
  group: cloudcredential.openshift.io
  names: {kind: CredentialsRequest, listKind: CredentialsRequestList, plural: credentialsrequests, singular: credentialsrequest}
  scope: Namespaced
  versions:
    - name: v1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          required: [spec]
          properties:
            spec:
              type: object
              required: [secretRef]
              properties:
                secretRef: {type: object, properties: {name: {type: string}, namespace: {type: string}}}
                serviceAccountNames: {type: array, items: {type: string}}
                cloudTokenPath: {type: string}
                providerSpec: {type: object, x-kubernetes-embedded-resource: false, x-kubernetes-preserve-unknown-fields: true}
`

// withoutKinds: a program that cannot work says so and ends.
func withoutKinds(t *testing.T, s *site) {
	for command, want := range map[string]string{
		"operator":    "has neither the kind CloudControllerManager of ccm.outrigger.dev nor OpenShift's ClusterOperator: install the former",
		"config-sync": "has no kind Infrastructure of config.openshift.io/v1: config-sync is for OpenShift",
	} {
		_, stderr, err := execute(stand.Binary(t, "ccm-operator"), command, "--kubeconfig="+s.Kubeconfig)
		if err == nil || !strings.Contains(string(stderr), want) {
			t.Errorf("%s: %v: %s", command, err, stderr)
		}
	}
}

const libvirtManager = `{"apiVersion":"ccm.outrigger.dev/v1alpha1","kind":"CloudControllerManager","metadata":{"name":"main"},"spec":{"provider":"libvirt","images":{"cloudControllerManagerOutrigger":"example.test/ccm:1"}}}`

// plain takes an installation on plain Kubernetes from nothing to nothing.
func (s *site) plain(t *testing.T, render []byte) {
	d := s.applied(t, render)
	s.Kubectl(t, "wait", "--for=condition=Established", "--timeout=3m", "crd/cloudcontrollermanagers.ccm.outrigger.dev")
	s.withoutRights(t, "take part in the election of a leader: leases.coordination.k8s.io \"cluster-cloud-controller-manager-leader\" is forbidden", d.Spec.Template.Spec.Containers[0].Args...)
	p := s.run(t, d, "ccm-operator")
	p.probed(t)
	s.Apply(t, libvirtManager)
	s.there(t, d.Namespace, "libvirt-cloud-controller-manager")
	s.ccmIs(t, ccmv1alpha1.AvailableCondition, metav1.ConditionTrue, "")
	s.scraped(t, d.Namespace)
	s.Kubectl(t, "delete", "ccm", "main", "--timeout=3m")
	p.end(t)
	s.kubectlWith(t, render, "delete", "--timeout=3m", "--filename=-")
	s.nothingLeft(t)
}

// helm takes a release through its life. What it says of a CloudControllerManager
// stays when the release goes, and so does what runs.
func (s *site) helm(t *testing.T, helm string) {
	namespace := onKubernetes.namespace
	do := func(args ...string) {
		t.Helper()
		cmd := exec.Command(helm, append(args, "--namespace="+namespace, "--kubeconfig="+s.Kubeconfig)...)
		cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+s.dir, "HELM_CONFIG_HOME="+s.dir, "HELM_DATA_HOME="+s.dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("helm %v: %v: %s", args, err, out)
		}
	}
	chart := filepath.Join(root, operatorChart)
	manager := []string{
		"--set", "cloudControllerManager.name=main", "--set", "cloudControllerManager.spec.provider=libvirt",
		"--set", "cloudControllerManager.spec.images.cloudControllerManagerOutrigger=example.test/ccm:1",
	}
	do(append([]string{"install", "ccm-operator", chart, "--create-namespace"}, manager...)...)
	p := s.run(t, deploymentOf(t, ccmChart(t)), "ccm-operator")
	s.there(t, namespace, "libvirt-cloud-controller-manager")
	s.ccmIs(t, ccmv1alpha1.AvailableCondition, metav1.ConditionTrue, "")
	do(append([]string{"upgrade", "ccm-operator", chart, "--set", "args={--watchdog-after=5m}"}, manager...)...)
	if args := s.Kubectl(t, "get", "deployment", "ccm-operator", "--namespace="+namespace, "--output=jsonpath={.spec.template.spec.containers[0].args}"); !strings.Contains(args, "--watchdog-after=5m") {
		t.Errorf("after the upgrade: %s", args)
	}
	p.end(t)
	do("uninstall", "ccm-operator")
	s.there(t, namespace, "libvirt-cloud-controller-manager")
	s.ccmIs(t, ccmv1alpha1.AvailableCondition, metav1.ConditionTrue, "")
	for value, set := range ccmChanges {
		if err := dryRun(s.ControlPlane, manifests(t, withoutCRD(parse(t, ccmChart(t, flags(set)...))))); err != nil {
			t.Errorf("%s: %v", value, err)
		}
	}
	do("install", "ccm-operator", chart)
	p = s.run(t, deploymentOf(t, ccmChart(t)), "ccm-operator")
	s.Kubectl(t, "delete", "ccm", "main", "--timeout=3m")
	p.end(t)
	do("uninstall", "ccm-operator")
	s.Kubectl(t, "delete", "crd/cloudcontrollermanagers.ccm.outrigger.dev", "namespace/"+namespace, "--timeout=3m")
	s.nothingLeft(t)
}

// withoutCRD leaves out what is there already.
func withoutCRD(all []*unstructured.Unstructured) []*unstructured.Unstructured {
	return slices.DeleteFunc(all, func(o *unstructured.Unstructured) bool { return o.GetKind() == "CustomResourceDefinition" })
}

func (s *site) ccmIs(t *testing.T, condition string, status metav1.ConditionStatus, says string) {
	t.Helper()
	eventually(t, condition, func() (string, bool) {
		s.play(t, onKubernetes.namespace)
		var c ccmv1alpha1.CloudControllerManager
		if err := s.client.Get(t.Context(), client.ObjectKey{Name: "main"}, &c); err != nil {
			return err.Error(), false
		}
		is := apimeta.FindStatusCondition(c.Status.Conditions, condition)
		if is == nil {
			return "not said", false
		}
		return string(is.Status) + "/" + is.Message, is.Status == status && strings.Contains(is.Message, says)
	})
}

// scraped: metrics are for whom the cluster lets, over TLS.
func (s *site) scraped(t *testing.T, namespace string) {
	t.Helper()
	const url = "https://127.0.0.1:9258/metrics"
	if status, _ := get(t, url, ""); status != http.StatusUnauthorized {
		t.Errorf("without a token: %d", status)
	}
	// Two accounts: what the cluster says of one counts for half a minute.
	if status, _ := get(t, url, s.token(t, namespace, "nobody")); status != http.StatusForbidden {
		t.Errorf("without the right: %d", status)
	}
	token := s.token(t, namespace, "scraper")
	s.Kubectl(t, "create", "clusterrolebinding", "scraper", "--clusterrole=ccm-operator-metrics-reader", "--serviceaccount="+namespace+":scraper")
	t.Cleanup(func() { s.Kubectl(t, "delete", "clusterrolebinding", "scraper") })
	eventually(t, "metrics", func() (string, bool) {
		status, body := get(t, url, token)
		return fmt.Sprint(status), status == http.StatusOK && strings.Contains(body, "outrigger_node_deletions_guarded") && strings.Contains(body, `outrigger_ccm_condition{condition="Available"`)
	})
}

// withoutRights: an account that has none is told so at once.
func (s *site) withoutRights(t *testing.T, want string, args ...string) {
	t.Helper()
	user := s.ServiceAccount(t, "default", "default")
	_, stderr, err := execute(stand.Binary(t, "ccm-operator"), append(args, "--kubeconfig="+user.Kubeconfig)...)
	if err == nil || !strings.Contains(string(stderr), want) {
		t.Errorf("%s: %v: %s", args[0], err, stderr)
	}
}

// token makes an account and returns a token of it.
func (s *site) token(t *testing.T, namespace, name string) string {
	t.Helper()
	s.Kubectl(t, "create", "serviceaccount", name, "--namespace="+namespace)
	return strings.TrimSpace(s.Kubectl(t, "create", "token", name, "--namespace="+namespace))
}

// nothingLeft: no object names the operator or what it deployed.
func (s *site) nothingLeft(t *testing.T) {
	t.Helper()
	const kinds = "namespaces,clusterroles,clusterrolebindings,roles,rolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings," +
		"customresourcedefinitions,leases,serviceaccounts,deployments,configmaps,services"
	for name := range strings.FieldsSeq(s.Kubectl(t, "get", kinds, "--all-namespaces", "--output=name")) {
		if strings.Contains(name, "ccm") || strings.Contains(name, "cloud-controller-manager") {
			t.Errorf("left: %s", name)
		}
	}
}

// shift takes the installation on OpenShift through platforms and bad inputs.
func (s *site) shift(t *testing.T, render []byte) {
	d := s.applied(t, render)
	const operands = "openshift-cloud-controller-manager"
	s.writeImages(t, allImages(t, render))
	s.cluster(t)
	s.infrastructure(t, `{"type":"AWS"}`)
	s.withoutRights(t, "read Infrastructure cluster: infrastructures.config.openshift.io \"cluster\" is forbidden", "operator")
	s.withoutRights(t, "read Infrastructure cluster: infrastructures.config.openshift.io \"cluster\" is forbidden", "config-sync")
	sync := s.run(t, d, "config-sync-controllers", "--cloud-config-degraded-after=1s")
	p := s.run(t, d, "cluster-cloud-controller-manager", "--images-json="+s.images, "--resync=1s", "--degraded-after=1s", "--feature-gates-after=0")
	sync.probed(t)
	p.probed(t)
	for _, c := range []struct{ platform, config, deployment string }{
		{`{"type":"AWS"}`, "", "aws-cloud-controller-manager"},
		{`{"type":"Azure","azure":{"cloudName":"AzurePublicCloud"}}`, `{"tenantId":"x"}`, "azure-cloud-controller-manager"},
		{`{"type":"GCP"}`, "[global]\nproject-id = p\n", "gcp-cloud-controller-manager"},
		{`{"type":"IBMCloud"}`, "[global]\nversion = 1.1.0\n", "ibm-cloud-controller-manager"},
		{`{"type":"PowerVS"}`, "[global]\nversion = 1.1.0\n", "powervs-cloud-controller-manager"},
		{`{"type":"Nutanix"}`, `{"prismCentral":{"address":"pc.example.test"}}`, "nutanix-cloud-controller-manager"},
		{`{"type":"OpenStack"}`, "[Networking]\n", "openstack-cloud-controller-manager"},
		{`{"type":"VSphere"}`, "[Global]\n[VirtualCenter \"v\"]\ndatacenters = d\n", "vsphere-cloud-controller-manager"},
	} {
		t.Run(c.deployment, func(t *testing.T) {
			s.configure(t, c.config)
			s.infrastructure(t, c.platform)
			s.there(t, operands, c.deployment)
			s.settled(t)
		})
	}
	if t.Failed() {
		return
	}
	t.Run("bad input", func(t *testing.T) { s.badInput(t) })
	s.scraped(t, d.Namespace)
	p.end(t)
	sync.end(t)
}

// badInput is what the program says in the ClusterOperator.
func (s *site) badInput(t *testing.T) {
	const began = "terminal error: failed to build operator config: "
	good, err := os.ReadFile(s.images)
	must(t, err)
	for want, text := range map[string]string{
		"unable to decode images content from --images-json":                "{",
		"vsphere: missed images in config: cloudControllerManagerVSphere":   `{"cloudControllerManagerAWS":"x"}`,
		"unable to read --images-json: open " + s.images + ": no such file": "",
	} {
		if text == "" {
			must(t, os.Remove(s.images))
		} else {
			must(t, os.WriteFile(s.images, []byte(text), 0o600))
		}
		s.operatorSays(t, "Degraded", "True/SyncingFailed/Failed to resync for operator: 0.0.1-snapshot because "+began+want)
	}
	must(t, os.WriteFile(s.images, good, 0o600))
	s.settled(t)
	s.infrastructure(t, "null")
	s.operatorSays(t, "CloudConfigControllerDegraded", "True/SyncingFailed/")
	s.operatorSays(t, "CloudConfigControllerWarning", "True/SyncingFailed/terminal error: failed to check cloud config sync requirements: platformStatus is required")
	s.operatorSays(t, "Degraded", "True/SyncingFailed/")
	s.infrastructure(t, `{"type":"None"}`)
	s.settled(t)
}

// settled waits until the ClusterOperator says that all is as wanted.
func (s *site) settled(t *testing.T) {
	t.Helper()
	s.operatorSays(t, "Degraded", "False/AsExpected/")
	s.operatorSays(t, "Progressing", "False/AsExpected/")
	s.operatorSays(t, "Available", "True/AsExpected/")
}

// cluster is what OpenShift's installer makes.
func (s *site) cluster(t *testing.T) {
	t.Helper()
	s.Apply(t, `{"apiVersion":"config.openshift.io/v1","kind":"Infrastructure","metadata":{"name":"cluster"},"spec":{"cloudConfig":{"name":"cloud-provider-config","key":"config"}}}`)
	s.Apply(t, `{"apiVersion":"config.openshift.io/v1","kind":"Network","metadata":{"name":"cluster"},"spec":{"serviceNetwork":["172.30.0.0/16"],"clusterNetwork":[],"networkType":"x"}}`)
	s.Apply(t, `{"apiVersion":"config.openshift.io/v1","kind":"ClusterVersion","metadata":{"name":"version"},"spec":{"clusterID":"x"}}`)
	s.says(t, "clusterversions", "version", `{"desired":{"version":"4.99.0","image":"x"},"observedGeneration":1,"versionHash":"x","availableUpdates":[]}`)
	s.Apply(t, `{"apiVersion":"config.openshift.io/v1","kind":"FeatureGate","metadata":{"name":"cluster"},"spec":{}}`)
	s.says(t, "featuregates", "cluster", `{"featureGates":[{"version":"4.99.0","enabled":[],"disabled":[{"name":"Other"}]}]}`)
}

// infrastructure makes the cluster run on a platform.
func (s *site) infrastructure(t *testing.T, platformStatus string) {
	t.Helper()
	s.says(t, "infrastructures", "cluster", `{"infrastructureName":"x","apiServerURL":"https://x","apiServerInternalURI":"https://x","etcdDiscoveryDomain":"","controlPlaneTopology":"HighlyAvailable","infrastructureTopology":"HighlyAvailable","platformStatus":`+platformStatus+`}`)
}

// says sets a status.
func (s *site) says(t *testing.T, kind, name, status string) {
	t.Helper()
	s.Kubectl(t, "patch", kind+".config.openshift.io", name, "--subresource=status", "--type=merge", `--patch={"status":`+status+`}`)
}

func (s *site) configure(t *testing.T, config string) {
	t.Helper()
	data, err := json.Marshal(map[string]string{"config": config})
	must(t, err)
	s.Apply(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"cloud-provider-config","namespace":"openshift-config"},"data":`+string(data)+`}`)
}

// operatorSays waits until a condition of the ClusterOperator begins so.
func (s *site) operatorSays(t *testing.T, condition, want string) {
	t.Helper()
	eventually(t, condition, func() (string, bool) {
		s.play(t, onOpenShift.namespace)
		var o configv1.ClusterOperator
		if err := s.client.Get(t.Context(), client.ObjectKey{Name: "cloud-controller-manager"}, &o); err != nil {
			return err.Error(), false
		}
		for _, c := range o.Status.Conditions {
			if is := string(c.Status) + "/" + c.Reason + "/" + c.Message; string(c.Type) == condition {
				return is, strings.HasPrefix(is, want)
			}
		}
		return "not said", false
	})
}

func (s *site) writeImages(t *testing.T, text string) {
	t.Helper()
	must(t, os.WriteFile(s.images, []byte(text), 0o600))
}

// allImages are those of the manifests.
func allImages(t *testing.T, render []byte) string {
	t.Helper()
	text, _, err := unstructured.NestedString(find(t, parse(t, render), "ConfigMap cloud-controller-manager-images").Object, "data", "images.json")
	must(t, err)
	return text
}
