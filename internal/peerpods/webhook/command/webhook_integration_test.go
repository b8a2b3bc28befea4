// SPDX-License-Identifier: Apache-2.0

//go:build integration

package command_test

import (
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/internal/peerpods/webhook/podsize"
	"github.com/outrigger/outrigger/test/cluster"
	"github.com/outrigger/outrigger/test/stand"
	"github.com/outrigger/outrigger/test/testns"
)

func TestMain(m *testing.M) { testns.Main(m) }

const namespace = "confidential-containers-system"

// site is a control plane with the webhook's manifests, and the webhook as a
// process with the rights of its service account.
type site struct {
	*cluster.ControlPlane
	robot *cluster.User
}

func newSite(t *testing.T) *site {
	testns.RequireRoot(t)
	c := cluster.StartControlPlane(t, cluster.ControlPlaneOptions{})
	c.Kubectl(t, "create", "namespace", namespace)
	base := filepath.Join(stand.Root(), "deploy", "base")
	c.Kubectl(t, "apply", "-k", filepath.Join(base, "webhook"))
	c.Kubectl(t, "apply", "-f", filepath.Join(base, "runtimeclass.yaml"))
	// There is no node that could run it and no network to a Service.
	c.Kubectl(t, "delete", "deployment", "peerpods-webhook", "--namespace", namespace)
	c.Kubectl(t, "patch", "mutatingwebhookconfiguration", "peerpods-webhook", "--type=json", "-p",
		`[{"op":"remove","path":"/webhooks/0/clientConfig/service"},{"op":"add","path":"/webhooks/0/clientConfig/url","value":"https://127.0.0.1:9443/mutate-v1-pod"}]`)
	return &site{c, c.ServiceAccount(t, namespace, "peerpods-webhook")}
}

// start runs a replica whose ports begin with 9443, 8443 and 8081, or others,
// and waits until it is ready.
func (s *site) start(t *testing.T, offset int, flags ...string) *stand.Process {
	t.Helper()
	health := fmt.Sprintf("127.0.0.1:%d", 8081+offset)
	p := stand.Start(t, stand.Daemon{
		Path: stand.Binary(t, "peerpods-webhook"), Log: filepath.Join(s.Dir, fmt.Sprintf("webhook%d.log", offset)),
		Args: append([]string{"-leader-elect", "-kubeconfig", s.robot.Kubeconfig, "-health-probe-bind-address", health,
			"-metrics-bind-address", fmt.Sprintf(":%d", 8443+offset), "-webhook-port", fmt.Sprint(9443 + offset)}, flags...),
		Env: []string{"POD_NAMESPACE=" + namespace, "TARGET_RUNTIMECLASS=", "POD_VM_EXTENDED_RESOURCE="},
	})
	eventually(t, "the webhook to be ready", func() error { return ok(http.Get("http://" + health + "/readyz")) })
	return p
}

func ok(r *http.Response, err error) error {
	if err != nil {
		return err
	}
	defer r.Body.Close()
	text, _ := io.ReadAll(r.Body)
	if r.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", r.Status, text)
	}
	return nil
}

func eventually(t *testing.T, what string, ask func() error) {
	t.Helper()
	err := ask()
	for deadline := time.Now().Add(2 * time.Minute); err != nil; err = ask() {
		if time.Now().After(deadline) {
			t.Fatalf("waited two minutes for %s: %v", what, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// create makes a pod out of the fields of its spec.
func (s *site) create(namespace, name, spec string) (*corev1.Pod, error) {
	cmd := s.Command("create", "--namespace", namespace, "-o", "json", "-f", "-")
	cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q},"spec":%s}`, name, spec))
	var errs bytes.Buffer // warnings, too
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s%s", out, &errs)
	}
	pod := &corev1.Pod{}
	return pod, json.Unmarshal(out, pod)
}

const (
	classed = `{"runtimeClassName":"kata-remote","containers":[{"name":"a","image":"x","resources":{"requests":{"cpu":"1500m","memory":"1Gi"},"limits":{"memory":"2Gi","ephemeral-storage":"1Gi"}}}]}`
	plain   = `{"containers":[{"name":"a","image":"x","resources":{"requests":{"cpu":"1500m"}}}]}`
)

func TestWebhookOfACluster(t *testing.T) {
	s := newSite(t)
	t.Run("not there yet", func(t *testing.T) { s.refused(t, "early", "connection refused") })
	p := s.start(t, 0)
	t.Run("sizes", s.sizes)
	t.Run("passes", s.passes)
	t.Run("refuses", s.refuses)
	t.Run("LimitRange", s.limitRange)
	t.Run("metrics", s.metrics)
	t.Run("second replica", s.secondReplica)
	p.Stop(syscall.SIGTERM)
	t.Run("down", func(t *testing.T) {
		s.refused(t, "down", "connection refused")
		if _, err := s.create("default", "plain-while-down", plain); err != nil {
			t.Errorf("a pod of no runtime class: %v", err)
		}
		if _, err := s.create("kube-system", "classed-while-down", classed); err != nil {
			t.Errorf("a pod in kube-system: %v", err)
		}
	})
	t.Run("wrong certificate", s.wrongCertificate)
	t.Run("rights suffice", s.rightsSuffice)
}

// refused is what a user sees whose pod cannot be sized.
func (s *site) refused(t *testing.T, name, want string) {
	t.Helper()
	_, err := s.create("default", name, classed)
	if err == nil || !strings.Contains(err.Error(), "mwebhook.peerpods.io") || !strings.Contains(err.Error(), want) {
		t.Errorf("creation says %v; want the webhook's name and %q", err, want)
	}
}

func (s *site) sizes(t *testing.T) {
	const trace = `"hugepages-2Mi":"4Mi"`
	for name, c := range map[string]struct {
		spec string
		want map[string]string
		left string
	}{
		"usual": {classed, map[string]string{podsize.AnnotationVCPUs: "2", podsize.AnnotationMemory: "2168"}, `{"ephemeral-storage":"1Gi","kata.peerpods.io/vm":"1"}`},
		"sidecar": {`{"runtimeClassName":"kata-remote","initContainers":[{"name":"s","image":"x","restartPolicy":"Always","resources":{"requests":{"cpu":"1"}}}],
			"containers":[{"name":"a","image":"x","resources":{"limits":{"cpu":"2"}}}]}`, map[string]string{podsize.AnnotationVCPUs: "3"}, `{"kata.peerpods.io/vm":"1"}`},
		"pod-level": {`{"runtimeClassName":"kata-remote","resources":{"limits":{"cpu":"4"}},"containers":[{"name":"a","image":"x"}]}`,
			map[string]string{podsize.AnnotationVCPUs: "4"}, `{"kata.peerpods.io/vm":"1"}`},
		"gpu": {`{"runtimeClassName":"kata-remote","nodeSelector":{"nvidia.com/gpu.product":"T4"},"containers":[{"name":"a","image":"x","resources":{"limits":{"nvidia.com/gpu":1}}}]}`,
			map[string]string{podsize.AnnotationGPUs: "1", podsize.AnnotationGPUModel: "T4"}, `{"kata.peerpods.io/vm":"1"}`},
		"huge-pages": {`{"runtimeClassName":"kata-remote","containers":[{"name":"a","image":"x","resources":{"requests":{"cpu":"1"},"limits":{` + trace + `}}}]}`,
			map[string]string{podsize.AnnotationVCPUs: "1"}, `{"cpu":"1m",` + trace + `,"kata.peerpods.io/vm":"1"}`},
		"huge-pages-of-the-pod": {`{"runtimeClassName":"kata-remote","resources":{"requests":{"cpu":"1"},"limits":{` + trace + `}},"containers":[{"name":"a","image":"x"},{"name":"b","image":"x"}]}`,
			map[string]string{podsize.AnnotationVCPUs: "1"}, `{"kata.peerpods.io/vm":"1"}`},
	} {
		t.Run(name, func(t *testing.T) {
			pod, err := s.create("default", name, c.spec)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for _, key := range []string{podsize.AnnotationVCPUs, podsize.AnnotationMemory, podsize.AnnotationGPUs, podsize.AnnotationGPUModel} {
				if value, found := pod.Annotations[key]; found {
					got[key] = value
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("sizes (-want +got):\n%s", diff)
			}
			var left corev1.ResourceList
			if err := json.Unmarshal([]byte(c.left), &left); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(left, pod.Spec.Containers[0].Resources.Requests); diff != "" {
				t.Errorf("requests of the first container (-want +got):\n%s", diff)
			}
		})
	}
}

// passes is what the webhook leaves alone while it is there.
func (s *site) passes(t *testing.T) {
	for namespace, spec := range map[string]string{"default": plain, "kube-system": classed, namespace: classed} {
		pod, err := s.create(namespace, "passes", spec)
		if err != nil {
			t.Fatal(err)
		}
		if _, found := pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU]; !found || len(pod.Annotations) > 0 {
			t.Errorf("the pod in %s was changed", namespace)
		}
	}
}

func (s *site) refuses(t *testing.T) {
	_, err := s.create("default", "wrong", strings.Replace(classed, `"2Gi"`, `"1Mi"`, 1))
	if err == nil || !strings.Contains(err.Error(), `container "a": request of memory: 1Gi is more than the limit of 1Mi`) {
		t.Errorf("creation says %v", err)
	}
}

// limitRange has defaults that the API server would put in place of what the
// webhook takes.
func (s *site) limitRange(t *testing.T) {
	s.Kubectl(t, "create", "namespace", "limited")
	s.Apply(t, `{"apiVersion":"v1","kind":"LimitRange","metadata":{"name":"l","namespace":"limited"},"spec":{"limits":[
		{"type":"Container","default":{"cpu":"3"},"defaultRequest":{"cpu":"100m"}}]}}`)
	eventually(t, "the service account", func() error {
		_, err := s.TryKubectl("get", "serviceaccount", "default", "--namespace", "limited")
		return err
	})
	pod, err := s.create("limited", "p", `{"runtimeClassName":"kata-remote","containers":[{"name":"a","image":"x","resources":{"requests":{"cpu":"2"},"limits":{"cpu":"4"}}},{"name":"b","image":"x"}]}`)
	if err != nil {
		t.Fatal(err)
	}
	if got := pod.Annotations[podsize.AnnotationVCPUs]; got != "7" {
		t.Errorf("%s vCPUs, want 7: 4 and the default of 3", got)
	}
	for _, c := range pod.Spec.Containers {
		if q, found := c.Resources.Requests[corev1.ResourceCPU]; found {
			t.Errorf("container %s asks its node for cpu %s", c.Name, q.String())
		}
	}
}

func (s *site) metrics(t *testing.T) {
	s.Kubectl(t, "create", "serviceaccount", "scraper")
	s.Kubectl(t, "create", "clusterrolebinding", "scraper", "--clusterrole=peerpods-webhook-metrics-reader", "--serviceaccount=default:scraper")
	s.Kubectl(t, "create", "serviceaccount", "stranger")
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	get := func(user *cluster.User) int {
		req, err := http.NewRequest(http.MethodGet, "https://127.0.0.1:8443/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		if user != nil {
			req.Header.Set("Authorization", "Bearer "+user.RESTConfig().BearerToken)
		}
		r, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		return r.StatusCode
	}
	got := []int{get(nil), get(s.ServiceAccount(t, "default", "stranger")), get(s.ServiceAccount(t, "default", "scraper"))}
	if diff := cmp.Diff([]int{401, 403, 200}, got); diff != "" {
		t.Errorf("status without a token, for a stranger, for the scraper (-want +got):\n%s", diff)
	}
}

func (s *site) secondReplica(t *testing.T) {
	p := s.start(t, 1)
	defer p.Stop(syscall.SIGTERM)
	var serials []string
	for _, port := range []string{"9443", "9444"} {
		conn, err := tls.Dial("tcp", "127.0.0.1:"+port, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		serials = append(serials, conn.ConnectionState().PeerCertificates[0].SerialNumber.String())
		conn.Close()
	}
	if serials[0] != serials[1] {
		t.Error("two certificates")
	}
	if out := s.Kubectl(t, "get", "lease", "a3663802.confidential-containers", "--namespace", namespace, "-o", "name"); out == "" {
		t.Error("no lease")
	}
}

// wrongCertificate has mounted files that the registration does not trust.
func (s *site) wrongCertificate(t *testing.T) {
	secret := map[string][]byte{}
	for _, key := range []string{"tls.crt", "tls.key"} {
		text := s.Kubectl(t, "get", "secret", "peerpods-webhook-tls", "--namespace", namespace, "-o", `jsonpath={.data['`+strings.ReplaceAll(key, ".", `\.`)+`']}`)
		data, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		secret[key] = data
	}
	dir := t.TempDir()
	for name, data := range secret {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// Of the control plane's authority, which has signed something else.
	s.Kubectl(t, "patch", "mutatingwebhookconfiguration", "peerpods-webhook", "--type=json", "-p",
		fmt.Sprintf(`[{"op":"replace","path":"/webhooks/0/clientConfig/caBundle","value":%q}]`, base64.StdEncoding.EncodeToString(s.RESTConfig().CAData)))
	p := s.start(t, 0, "-cert-dir", dir)
	s.refused(t, "untrusted", "x509: certificate signed by unknown authority")
	p.Stop(syscall.SIGTERM)
	// Its own certificates again: it mends the registration.
	s.start(t, 0)
	if _, err := s.create("default", "trusted-again", classed); err != nil {
		t.Error(err)
	}
}

func (s *site) rightsSuffice(t *testing.T) {
	logs, err := filepath.Glob(filepath.Join(s.Dir, "webhook*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("no logs: %v", err)
	}
	for _, log := range logs {
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "forbidden") {
				t.Errorf("%s: %s", filepath.Base(log), line)
			}
		}
	}
}
