// SPDX-License-Identifier: Apache-2.0

//go:build integration

package deploy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/internal/nodes/operator/bundle"
	"github.com/outrigger/outrigger/internal/nodes/operator/bundles"
	clustersettings "github.com/outrigger/outrigger/internal/nodes/operator/settings"
	crds "github.com/outrigger/outrigger/test/openshift"
	"github.com/outrigger/outrigger/test/stand"
	"github.com/outrigger/outrigger/test/tier"
)

// release is that of the cluster in these tests.
const release = "4.99.0"

// TestTakeover follows the manual on clusters as OpenShift's own operator leaves them:
// taken over, no workload has another template of pods; given back, nothing of ours is
// left, and the other operator changes no template either.
func TestTakeover(t *testing.T) {
	s := newSite(t)
	crds.Install(t, s.ControlPlane)
	s.Apply(t, credentialsRequests)
	s.Kubectl(t, "wait", "--for=condition=Established", "--timeout=3m", "crd/credentialsrequests.cloudcredential.openshift.io")
	for _, name := range []string{"openshift-config", "openshift-config-managed", "openshift-cloud-credential-operator"} {
		s.Kubectl(t, "create", "namespace", name)
	}
	s.cluster(t)
	s.Apply(t, `{"apiVersion":"config.openshift.io/v1","kind":"Proxy","metadata":{"name":"cluster"},"spec":{}}`)
	s.kubectlWith(t, []byte(manifests(t, ofRelease(t))), "apply", "--server-side", "--filename=-")
	for _, p := range takenOver {
		t.Run(p.bundle, func(t *testing.T) {
			if p.bundle != "azure" && p.bundle != "vsphere" {
				tier.OnlyAll(t) // these two have all kinds, and most rights
			}
			s.takeover(t, p)
		})
	}
}

// takenOver are platforms with a configuration as users write it and as OpenShift's
// operator does.
var takenOver = []struct{ bundle, status, given, written string }{
	{"aws", `{"type":"AWS"}`, "[Global]\nZone=a\n", "[Global]\nZone                                           = a\nDisableSecurityGroupIngress                    = false\nClusterServiceLoadBalancerHealthProbeMode      = Shared\nClusterServiceSharedLoadBalancerHealthProbePort = 0\n"},
	{"azure", `{"type":"Azure","azure":{"cloudName":"AzurePublicCloud"}}`, `{"tenantId":"x","userAssignedIdentityID":""}`, `{"cloud":"AzurePublicCloud","tenantId":"x","vmType":"standard","clusterServiceLoadBalancerHealthProbeMode":"shared"}`},
	{"vsphere", `{"type":"VSphere"}`, "[Global]\nuser = u\n[VirtualCenter \"v\"]\ndatacenters = d\n", "global:\n  user: u\n  password: \"\"\n  port: 0\nvcenter:\n  v:\n    server: v\n    datacenters:\n    - d\n"},
	{"azurestackhub", `{"type":"Azure","azure":{"cloudName":"AzureStackCloud"}}`, `{"tenantId":"x"}`, `{"tenantId":"x","vmType":"standard"}`},
	{"gcp", `{"type":"GCP"}`, "[global]\nproject-id = p\n", "[global]\nproject-id = p\n"},
	{"ibmcloud", `{"type":"IBMCloud"}`, "[global]\nversion = 1.1.0\n", "[global]\nversion = 1.1.0\n"},
	{"powervs", `{"type":"PowerVS"}`, "[global]\nversion = 1.1.0\n", "[global]\nversion = 1.1.0\n"},
	{"nutanix", `{"type":"Nutanix"}`, `{"prismCentral":{"address":"pc.example.test"}}`, `{"prismCentral":{"address":"pc.example.test"}}`},
	{"openstack", `{"type":"OpenStack"}`, "[Networking]\n", "[Networking]\n\n[Global]\nuse-clouds  = true\nclouds-file = /etc/openstack/secret/clouds.yaml\ncloud       = openstack\n\n[LoadBalancer]\nmax-shared-lb          = 1\nmanage-security-groups = true\n"},
}

// ofRelease is what a release brings besides its operator: its names are those of our
// installation where there is no release. Its Deployment stands for its operator's, with
// words that are not ours.
func ofRelease(t *testing.T) []*unstructured.Unstructured {
	ours := map[string]bool{"NetworkPolicy operator": true, "NetworkPolicy cloud-controller-manager": true, "NetworkPolicy cloud-node-manager": true}
	for _, o := range parse(t, output(t, tool(t, "kustomize"), "build", filepath.Join(root, "deploy/ccm-operator/openshift/operator"))) {
		ours[id(o)] = o.GetKind() != "Deployment"
	}
	text := strings.NewReplacer("localhost/outrigger/ccm-operator", "example.test/other", "ccm-operator", "other", "outrigger", "other").Replace(string(onOpenShift.render(t)))
	all := inOrder(t, []byte(text))
	for i, o := range inOrder(t, onOpenShift.render(t)) {
		if ours[id(o)] {
			all[i] = nil
		}
	}
	return slices.DeleteFunc(all, func(o *unstructured.Unstructured) bool { return o == nil })
}

func (s *site) takeover(t *testing.T, p struct{ bundle, status, given, written string }) {
	s.says(t, "proxies", "cluster", `{"httpProxy":""}`)
	s.infrastructure(t, p.status)
	s.configure(t, p.given)
	before := s.asTheOther(t, p.bundle, p.written)
	dir := t.TempDir()
	must(t, os.CopyFS(filepath.Join(dir, "deploy"), os.DirFS(filepath.Join(root, "deploy"))))
	commands := fenced(page(t, "ccm-operator-takeover.md"))
	out := s.differs(t, dir, strings.Replace(commands[0], "PLATFORM", p.bundle, 1))
	if strings.Contains(out, "Deployment") || strings.Contains(out, "DaemonSet") || p.bundle == "azure" && !strings.Contains(out, "ValidatingAdmissionPolicy") {
		t.Errorf("the manual's look beforehand shows a workload, or no policy: %s", out)
	}
	s.bash(t, dir, commands[1])
	d := &appsv1.Deployment{}
	must(t, s.client.Get(t.Context(), client.ObjectKey{Namespace: onOpenShift.home, Name: "cluster-cloud-controller-manager-operator"}, d))
	sync := s.run(t, d, "config-sync-controllers")
	operator := s.run(t, d, "cluster-cloud-controller-manager", "--images-json="+s.images, "--requeue=1s")
	s.inventoried(t, len(before))
	s.settled(t)
	s.operatorSays(t, "Available", "True/AsExpected/Cluster Cloud Controller Manager Operator is available at "+release)
	if warning := s.Kubectl(t, "get", "clusteroperator", "cloud-controller-manager", `--output=jsonpath={.status.conditions[?(@.type=="CloudControllerManagerWarning")]}`); strings.Contains(warning, `"True"`) {
		t.Error(warning)
	}
	for _, w := range before {
		is := s.live(t, w)
		// An annotation is a new generation of a Deployment, and none of a DaemonSet.
		longest := w.GetGeneration()
		if w.GetKind() == "Deployment" {
			longest++
		}
		if diff := cmp.Diff(template(w), template(is)); diff != "" || is.GetGeneration() > longest || is.GetUID() != w.GetUID() {
			t.Errorf("taken over, %s has generation %d, had %d: %s", id(w), is.GetGeneration(), w.GetGeneration(), diff)
		}
	}
	s.samePolicies(t, p.bundle)
	// What changes in between the other operator has to find as it would have made it.
	s.says(t, "proxies", "cluster", `{"httpProxy":"http://proxy.example:3128"}`)
	for _, w := range before {
		eventually(t, "the proxy in "+id(w), func() (string, bool) {
			text, err := json.Marshal(template(s.live(t, w)))
			return string(text), err == nil && strings.Contains(string(text), "http://proxy.example:3128")
		})
	}
	s.settled(t)
	operator.end(t)
	sync.end(t)
	s.bash(t, dir, commands[3])
	s.nothingOfOurs(t)
	for _, w := range before {
		s.theOtherRests(t, p.bundle, w)
	}
	s.clear(t, p.bundle)
}

// inventoried waits until the operator has taken all over.
func (s *site) inventoried(t *testing.T, workloads int) {
	t.Helper()
	eventually(t, "an inventory", func() (string, bool) {
		out, err := s.Command("get", "deployments,daemonsets", "--namespace="+onOpenShift.namespace, "--output=jsonpath={.items[*].metadata.annotations.ccm\\.outrigger\\.dev/owner}").CombinedOutput()
		return string(out), err == nil && len(strings.Fields(string(out))) == workloads
	})
}

// live is a workload as it is now.
func (s *site) live(t *testing.T, w *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	is := &unstructured.Unstructured{}
	is.SetGroupVersionKind(w.GroupVersionKind())
	must(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(w), is))
	return is
}

func template(w *unstructured.Unstructured) map[string]any {
	fields, _, _ := unstructured.NestedMap(w.Object, "spec", "template")
	return fields
}

// differs runs the manual's look at what would be changed, whose exit status is 1 where
// that is an admission policy.
func (s *site) differs(t *testing.T, dir, commands string) string {
	t.Helper()
	cmd := s.shell(t, dir, commands)
	out, err := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code > 1 {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// bash runs commands of the manual. What a reader puts in is put in.
func (s *site) bash(t *testing.T, dir, commands string) {
	t.Helper()
	if out, err := s.shell(t, dir, commands).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func (s *site) shell(t *testing.T, dir, commands string) *exec.Cmd {
	t.Helper()
	kubectl := s.Command("version")
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", `oc() { "$KUBECTL" "$@"; }`+"\n"+commands)
	path := filepath.Dir(stand.Binary(t, "ccm-operator")) + string(os.PathListSeparator) + os.Getenv("PATH")
	cmd.Dir, cmd.Env = dir, append(kubectl.Environ(), "KUBECTL="+kubectl.Path, "KUBECONFIG="+s.Kubeconfig, "PATH="+path)
	return cmd
}

// asTheOther makes a platform's objects as OpenShift's operator leaves them, and
// returns the workloads.
func (s *site) asTheOther(t *testing.T, name, config string) (workloads []*unstructured.Unstructured) {
	t.Helper()
	b := bundleNamed(t, name)
	images := imagesOf(b)
	text, err := json.Marshal(images)
	must(t, err)
	s.writeImages(t, string(text))
	patch, err := json.Marshal(map[string]any{"data": map[string]string{"images.json": string(text)}})
	must(t, err)
	s.Kubectl(t, "patch", "configmap", "cloud-controller-manager-images", "--namespace="+onOpenShift.home, "--type=merge", "--patch="+string(patch))
	data := map[string]map[string]string{"cloud-conf": {"cloud.conf": config}, "ccm-trusted-ca": {"ca-bundle.crt": string(s.RESTConfig().CAData)}}
	for cm, d := range data {
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: onOpenShift.namespace, Name: cm}, Data: d}
		if cm == "ccm-trusted-ca" {
			o.Annotations = map[string]string{"openshift.io/owning-component": "Cloud Compute / Cloud Controller Manager"}
		}
		must(t, s.client.Create(t.Context(), o))
	}
	for _, secret := range b.SecretNames() {
		o := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: onOpenShift.namespace, Name: secret}, Data: map[string][]byte{"clouds.yaml": []byte("x")}}
		must(t, client.IgnoreAlreadyExists(s.client.Create(t.Context(), o)))
	}
	for _, o := range s.rendered(t, b, images, nil) {
		if p, is := o.(*admissionv1.ValidatingAdmissionPolicy); is {
			p.Spec.Validations[0].Message, p.Spec.Validations[0].MessageExpression = "the other's words", ""
		}
		kind := o.GetObjectKind().GroupVersionKind()
		must(t, s.client.Create(t.Context(), o))
		if bundle.PodSpec(o) != nil {
			o.GetObjectKind().SetGroupVersionKind(kind)
			fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
			must(t, err)
			workloads = append(workloads, s.live(t, &unstructured.Unstructured{Object: fields}))
		}
	}
	return workloads
}

// rendered are a platform's objects as either operator makes them, with the sums of what
// their pods read and of themselves.
func (s *site) rendered(t *testing.T, b *bundle.Bundle, images bundle.Images, proxy *bundle.Proxy) []client.Object {
	t.Helper()
	tls, err := clustersettings.TLSFromAPIServer(nil)
	must(t, err)
	objects, err := b.Resources(bundle.Values{Images: images, InfrastructureName: "x", TLSMinVersion: tls.MinVersion, TLSCipherSuites: tls.CipherSuites, Proxy: proxy})
	must(t, err)
	for _, o := range objects {
		switch o := o.(type) {
		case *appsv1.Deployment:
			s.stamp(t, &o.Spec.Template)
			o.Annotations = stamps(t, o.Spec)
		case *appsv1.DaemonSet:
			s.stamp(t, &o.Spec.Template)
			o.Annotations = stamps(t, o.Spec)
		}
	}
	return objects
}

// Annotations by which OpenShift's operator knows what it has made.
const (
	ofConfig     = "operator.openshift.io/config-hash"
	ofSpec       = "operator.openshift.io/spec-hash"
	ofGeneration = "operator.openshift.io/generation"
)

func stamps(t *testing.T, spec any) map[string]string {
	return map[string]string{ofSpec: hashed(t, spec), ofGeneration: "1"}
}

func hashed(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	must(t, err)
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// stamp puts the sum of all ConfigMaps and Secrets of the volumes into a template.
func (s *site) stamp(t *testing.T, of *corev1.PodTemplateSpec) {
	t.Helper()
	read := struct {
		ConfigMaps map[string]map[string]string `json:"configMaps"`
		Secrets    map[string]map[string][]byte `json:"secrets"`
	}{map[string]map[string]string{}, map[string]map[string][]byte{}}
	for _, v := range of.Spec.Volumes {
		if v.ConfigMap != nil {
			var cm corev1.ConfigMap
			must(t, s.client.Get(t.Context(), client.ObjectKey{Namespace: onOpenShift.namespace, Name: v.ConfigMap.Name}, &cm))
			read.ConfigMaps[cm.Name] = cm.Data
		}
		if v.Secret != nil {
			var secret corev1.Secret
			must(t, s.client.Get(t.Context(), client.ObjectKey{Namespace: onOpenShift.namespace, Name: v.Secret.SecretName}, &secret))
			read.Secrets[secret.Name] = secret.Data
		}
	}
	of.Annotations[ofConfig] = hashed(t, read)
}

// theOtherRests has the other operator look at a workload until it writes nothing: it
// writes one whose sum is not that of what it wants, or whose generation is not the one
// that it noted. A template that is another one then would restart the pods.
func (s *site) theOtherRests(t *testing.T, name string, w *unstructured.Unstructured) {
	t.Helper()
	b, was := bundleNamed(t, name), template(s.live(t, w))
	all := s.rendered(t, b, imagesOf(b), &bundle.Proxy{HTTP: "http://proxy.example:3128"})
	i := slices.IndexFunc(all, func(o client.Object) bool { return bundle.PodSpec(o) != nil && o.GetName() == w.GetName() })
	wanted, err := runtime.DefaultUnstructuredConverter.ToUnstructured(all[i])
	must(t, err)
	for writes := 0; ; writes++ {
		is := s.live(t, w)
		annotations := is.GetAnnotations()
		if diff := cmp.Diff(was, template(is)); diff != "" || writes > 1 {
			t.Fatalf("given back, %s is written %d times, %v: %s", id(is), writes, annotations, diff)
		}
		same := annotations[ofSpec] == all[i].GetAnnotations()[ofSpec]
		if !same {
			t.Errorf("%s has the sum %s, and the other operator wants %s", id(is), annotations[ofSpec], all[i].GetAnnotations()[ofSpec])
		}
		if same && annotations[ofGeneration] == strconv.FormatInt(is.GetGeneration(), 16) {
			return
		}
		is.Object["spec"] = wanted["spec"]
		annotations[ofSpec], annotations[ofGeneration] = all[i].GetAnnotations()[ofSpec], strconv.FormatInt(is.GetGeneration()+1, 16)
		is.SetAnnotations(annotations)
		must(t, s.client.Update(t.Context(), is))
	}
}

// samePolicies: each of ours has the place of one of the other's.
func (s *site) samePolicies(t *testing.T, name string) {
	t.Helper()
	var want []string
	for _, o := range s.rendered(t, bundleNamed(t, name), imagesOf(bundleNamed(t, name)), nil) {
		if p, is := o.(*admissionv1.ValidatingAdmissionPolicy); is {
			want = append(want, p.Name)
		}
	}
	var policies admissionv1.ValidatingAdmissionPolicyList
	must(t, s.client.List(t.Context(), &policies))
	var is []string
	for _, p := range policies.Items {
		is = append(is, p.Name)
		if p.Spec.Validations[0].Message == "the other's words" {
			t.Errorf("policy %s is as the other has written it", p.Name)
		}
	}
	if slices.Sort(want); !slices.Equal(want, is) {
		t.Errorf("policies %v, want %v", is, want)
	}
}

// nothingOfOurs looks at all objects of all kinds, whatever they have except for who
// wrote which field.
func (s *site) nothingOfOurs(t *testing.T) {
	t.Helper()
	resources := strings.Fields(s.Kubectl(t, "api-resources", "--verbs=list", "--output=name"))
	resources = slices.DeleteFunc(resources, func(r string) bool {
		return strings.HasPrefix(r, "events") || strings.HasPrefix(r, "componentstatuses")
	})
	// Printed as JSON, objects have no fields that say who wrote what.
	var list unstructured.UnstructuredList
	must(t, json.Unmarshal([]byte(s.Kubectl(t, "get", strings.Join(resources, ","), "--all-namespaces", "--output=json")), &list))
	if len(list.Items) < 50 {
		t.Errorf("there are only %d objects", len(list.Items))
	}
	for _, o := range list.Items {
		text, err := json.Marshal(o.Object)
		must(t, err)
		for _, word := range []string{"outrigger", "ccm-operator"} {
			if strings.Contains(string(text), word) {
				t.Errorf("%s is left in %s", word, text)
			}
		}
	}
}

// clear removes what the next platform makes again.
func (s *site) clear(t *testing.T, name string) {
	t.Helper()
	b := bundleNamed(t, name)
	for _, o := range s.rendered(t, b, imagesOf(b), nil) {
		must(t, client.IgnoreNotFound(s.client.Delete(t.Context(), o)))
	}
	s.Kubectl(t, "delete", "configmap", "--namespace="+onOpenShift.namespace, "cloud-conf", "ccm-trusted-ca")
	// The version operator brings the other operator back.
	s.kubectlWith(t, []byte(manifests(t, ofRelease(t))), "apply", "--server-side", "--force-conflicts", "--filename=-")
}

func imagesOf(b *bundle.Bundle) bundle.Images {
	images := bundle.Images{bundle.OperatorImage: "example.test/operator:1"}
	for _, key := range b.ImageKeys() {
		images[key] = "example.test/" + key
	}
	return images
}

func bundleNamed(t *testing.T, name string) *bundle.Bundle {
	t.Helper()
	set, err := bundles.Set()
	must(t, err)
	b, err := set.Named(name)
	must(t, err)
	return b
}
