// SPDX-License-Identifier: Apache-2.0

//go:build integration

package nodes

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/outrigger/outrigger/internal/nodes/operator/watchdog"
)

// TestNodes is one cluster from the installation to the end: each part goes on
// from where the one before it left off.
func TestNodes(t *testing.T) {
	l := newLab(t)
	for _, part := range []struct {
		name string
		test func(*lab)
	}{
		{"the operator runs on a Node that waits", installs},
		{"cause: a ConfigMap is missing", lacksConfigMap},
		{"cause: a kubelet without the flag", lacksFlag},
		{"cause: the cloud refuses the credentials", lacksSecret},
		{"a Node is initialized", initializes},
		{"cause: a providerID of another cloud", foreign},
		{"further Nodes are initialized", initializesMore},
		{"an empty inventory removes no Node", survivesEmptiness},
		{"an unreadable inventory removes no Node", survivesSilence},
		{"a removed instance removes its Node", removes},
		{"the guard stops a mass deletion", guards},
		{"a change of the configuration rolls the pods", rolls},
		{"cause: the manager crashes", crashes},
		{"cause: an image that there is not", lacksImage},
		{"cause: the manager hangs", hangs},
		{"with the CloudControllerManager all goes that was made for it", leaves},
		{"an uninstallation leaves nothing", uninstalls},
	} {
		if !t.Run(part.name, func(t *testing.T) { part.test(l.of(t)) }) {
			t.FailNow()
		}
	}
}

func installs(l *lab) {
	l.remember(l.bare)
	*l.installed = l.install()
	l.api.Kubectl(l, "-n", namespace, "rollout", "status", "deployment/ccm-operator", "--timeout=5m")
	l.remember(l.idle)
	if !l.waits("node1") {
		l.Fatal("node1 does not wait for its cloud")
	}
}

// waits reports whether a Node has the taint.
func (l *lab) waits(node string) bool {
	l.Helper()
	n := l.get(node)
	return n != nil && slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == cloudproviderapi.TaintExternalCloudProvider })
}

// manifest is what a user writes. More is merged into its spec.
func (l *lab) apply(image string) {
	l.Helper()
	l.api.Apply(l, fmt.Sprintf(`
apiVersion: ccm.outrigger.dev/v1alpha1
kind: CloudControllerManager
metadata: {name: main}
spec:
  provider: libvirt
  topology: SingleReplica
  images: {%s: %q}
  cloudConfig: {name: my-cloud}
  nodeDeletions: {max: 3, notReadyFor: 2s, minAge: 1s}
`, imageKey, image))
}

// configure writes the ConfigMap with the cloud's configuration; site is the value
// of a label that all Nodes get.
func (l *lab) configure(uri, site string) {
	l.Helper()
	l.applyObject("ConfigMap", "my-cloud", map[string]any{"data": map[string]string{"cloud.conf": strings.Join([]string{
		"LIBVIRT_URI=" + uri, "CCM_INSTANCE_TAGS=outrigger-cluster=" + clusterTag,
		"CCM_NODE_LABELS=" + siteLabel + "=" + site, "CCM_NODE_LABELS_FROM_TAGS=" + rackTag + "=" + rackLabel,
		"CCM_GONE_AFTER=2s", "CCM_INVENTORY_MAX_AGE=500ms", "CCM_PROVIDER_CALL_TIMEOUT=5s",
	}, "\n")}})
}

func (l *lab) applyObject(kind, name string, o map[string]any) {
	l.Helper()
	o["apiVersion"], o["kind"], o["metadata"] = "v1", kind, map[string]string{"name": name, "namespace": namespace}
	data, err := json.Marshal(o)
	l.must(err)
	l.api.Apply(l, string(data))
}

func (l *lab) uri() string { return "qemu+tls://" + l.daemon.TLS.Address + "/system" }

func lacksConfigMap(l *lab) {
	l.apply(l.images["cloud-controller-manager"])
	l.named("node1", watchdog.ConfigurationMissing, "ConfigMap "+namespace+"/my-cloud", "spec.cloudConfig")
}

func lacksFlag(l *lab) {
	l.named("node2", watchdog.KubeletNotExternal, external)
}

// lacksSecret: the manager runs, and cannot show the daemon a certificate.
func lacksSecret(l *lab) {
	l.configure(l.uri(), here)
	l.named("node1", watchdog.CloudError, "CloudCredentialsRefused", "LIBVIRT_PKI_DIR")
}

// initializes makes the Secret, and no more: it rolls the pods.
func initializes(l *lab) {
	files := map[string][]byte{}
	for _, name := range []string{"cacert.pem", "clientcert.pem", "clientkey.pem"} {
		data, err := os.ReadFile(filepath.Join(l.daemon.TLS.Client, name))
		l.must(err)
		files[name] = data
	}
	l.applyObject("Secret", "libvirt-client", map[string]any{"data": files})
	l.initialized("node1")
	l.api.Kubectl(l, "wait", "ccm/main", "--for=condition=Available", "--timeout=5m")
	columns := l.api.Kubectl(l, "get", "ccm", "-o", "wide")
	l.Log("\n" + columns)
	l.must(contains(columns, "PROVIDER", "AVAILABLE", "libvirt", "True"))
	l.until("the condition ends", func() error {
		for _, c := range l.get("node1").Status.Conditions {
			if c.Type == watchdog.Condition && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return errors.New("it is not True")
	})
}

// initialized waits until a Node is what its instance is.
func (l *lab) initialized(name string) {
	l.Helper()
	i := l.instances[name]
	l.until("Node "+name+" is initialized", func() error {
		n := l.get(name)
		switch {
		case n == nil:
			return errors.New("it is not there")
		case l.waits(name):
			return fmt.Errorf("it has the taint; conditions %+v", n.Status.Conditions)
		case n.Spec.ProviderID != "libvirt://"+i.ID:
			return fmt.Errorf("providerID %q, want that of %s", n.Spec.ProviderID, i.ID)
		case !slices.Contains(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: i.IPs[0].String()}):
			return fmt.Errorf("addresses %v, want %s", n.Status.Addresses, i.IPs[0])
		case n.Labels[siteLabel] != here || n.Labels[rackLabel] != "r-"+name:
			return fmt.Errorf("labels %v", n.Labels)
		}
		return nil
	})
}

// foreign gives the second kubelet its flag, and another cloud's providerID; then
// it does what the condition advised.
func foreign(l *lab) {
	l.rejoin(external, "--provider-id=aws:///eu-1a/i-0123")
	l.named("node2", watchdog.ForeignProviderID, "aws:///eu-1a/i-0123", "--provider-id")
	l.rejoin(external)
	l.initialized("node2")
}

// rejoin deletes the second Node and starts its kubelet again.
func (l *lab) rejoin(kubelet ...string) {
	l.Helper()
	l.api.Kubectl(l, "delete", "node", "node2")
	l.second.RestartKubelet(l.top, kubelet...)
	l.until("kubelet registers node2", func() error {
		if l.get("node2") == nil {
			return errors.New("it is not there")
		}
		return nil
	})
}

// initializesMore has Nodes without machines; one has no instance either and
// waits on.
func initializesMore(l *lab) {
	for n := range crowd {
		l.instance(plainName(n))
		l.add(plainName(n), "")
	}
	for n := range crowd {
		l.initialized(plainName(n))
	}
	l.add("waiting", "")
	l.named("waiting", watchdog.CloudError, "InstanceNotFound")
	for n := range bystanders {
		l.add(fmt.Sprint("bystander-", n), fmt.Sprint("other://", n))
	}
}

// crowd is how many are lost at once in the end; with the bystanders, which are
// of another cloud, they are less than the part that makes the guard stop all.
const crowd, bystanders = 10, 8

func plainName(n int) string { return fmt.Sprint("plain-", n) }
