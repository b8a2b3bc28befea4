// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/outrigger/outrigger/test/tier"
)

// changes has another value for every value of the chart, with what else it
// takes to matter; the golden renders show those together.
var changes = map[string][]string{
	"provider":                         {"provider=mycloud", "plugins.image=mine"},
	"providerConfigs":                  {"providerConfigs.libvirt.LIBVIRT_NET=other"},
	"providerSecrets":                  {"provider=mycloud", "plugins.image=mine", "providerSecrets.mycloud.TOKEN=t"},
	"config":                           {"config.PROXY_TIMEOUT=7m"},
	"limit":                            {"limit=7"},
	"secrets.mode":                     {"secrets.mode=reference"},
	"secrets.existingSecretName":       {"secrets.mode=reference", "resourceCtrl.enabled=false", "secrets.existingSecretName=mine"},
	"secrets.existingSshKeySecretName": {"secrets.existingSshKeySecretName=mine"},
	"secrets.existingFilesSecretName":  {"secrets.existingFilesSecretName=mine"},
	"secrets.existingTlsSecretName":    {"secrets.existingTlsSecretName=mine"},
	"tlsCerts.ca":                      {"tlsCerts.ca=other", "tlsCerts.cert=a", "tlsCerts.key=a"},
	"tlsCerts.cert":                    {"tlsCerts.ca=a", "tlsCerts.cert=other", "tlsCerts.key=a"},
	"tlsCerts.key":                     {"tlsCerts.ca=a", "tlsCerts.cert=a", "tlsCerts.key=other"},
	"tlsProfile.minVersion":            {"tlsProfile.minVersion=VersionTLS13"},
	"tlsProfile.cipherSuites":          {"tlsProfile.cipherSuites={TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384}"},
	"image.prefix":                     {"image.prefix=registry.example.com/o"},
	"image.tag":                        {"image.tag=v7"},
	"image.digests":                    {"image.digests.agent-relay=sha256:" + strings.Repeat("0a", 32)},
	"image.pullPolicy":                 {"image.pullPolicy=Never"},
	"image.pullSecrets":                {"image.pullSecrets={mine}"},
	"daemonset.updateStrategy.type":    {"daemonset.updateStrategy.type=OnDelete"},
	"daemonset.updateStrategy.rollingUpdate.maxUnavailable": {"daemonset.updateStrategy.rollingUpdate.maxUnavailable=7"},
	"daemonset.updateStrategy.rollingUpdate.maxSurge":       {"daemonset.updateStrategy.rollingUpdate.maxSurge=7"},
	"daemonset.resources.requests.cpu":                      {"daemonset.resources.requests.cpu=7"},
	"daemonset.resources.requests.memory":                   {"daemonset.resources.requests.memory=7Gi"},
	"nodeSelector.node.kubernetes.io/worker":                {`nodeSelector.other\.example\.com=yes`},
	"tolerations":                                           {"tolerations[0].operator=Exists"},
	"podLabels":                                             {"podLabels.other=yes"},
	"serviceAccount.annotations":                            {"serviceAccount.annotations.other=yes"},
	"serviceAccountTokens":                                  {"serviceAccountTokens[0].audience=a", "serviceAccountTokens[0].mountPath=/a"},
	"plugins.image":                                         {"plugins.image=mine"},
	"plugins.hostPath":                                      {"plugins.hostPath=/other"},
	"kubelet.kubeconfigs":                                   {"kubelet.kubeconfigs={/other}"},
	"kubelet.folders":                                       {"kubelet.folders={/other}"},
	"kubelet.configFolders":                                 {"kubelet.configFolders={/other}"},
	"runtimeClass.create":                                   {"runtimeClass.create=false"},
	"runtimeClass.name":                                     {"runtimeClass.name=other"},
	"runtimeClass.handler":                                  {"runtimeClass.handler=other"},
	"runtimeClass.overhead.memory":                          {"runtimeClass.overhead.memory=7Gi"},
	"nodeInstaller.enabled":                                 {"nodeInstaller.enabled=true"},
	"nodeInstaller.containerdConfig":                        {"nodeInstaller.enabled=true", "nodeInstaller.containerdConfig=/other/config.toml"},
	"nodeInstaller.binFolder":                               {"nodeInstaller.enabled=true", "nodeInstaller.binFolder=/other"},
	"nodeInstaller.unit":                                    {"nodeInstaller.enabled=true", "nodeInstaller.unit=other.service"},
	"nodeInstaller.resources.requests.cpu":                  {"nodeInstaller.enabled=true", "nodeInstaller.resources.requests.cpu=7"},
	"nodeInstaller.resources.requests.memory":               {"nodeInstaller.enabled=true", "nodeInstaller.resources.requests.memory=7Gi"},
	"resourceCtrl.enabled":                                  {"resourceCtrl.enabled=false"},
	"resourceCtrl.resources.requests.cpu":                   {"resourceCtrl.resources.requests.cpu=7"},
	"resourceCtrl.resources.requests.memory":                {"resourceCtrl.resources.requests.memory=7Gi"},
	"webhook.enabled":                                       {"webhook.enabled=false"},
	"webhook.replicas":                                      {"webhook.replicas=7"},
	"webhook.certManager.enabled":                           {"webhook.certManager.enabled=true"},
	"webhook.resources.requests.cpu":                        {"webhook.resources.requests.cpu=7"},
	"webhook.resources.requests.memory":                     {"webhook.resources.requests.memory=7Gi"},
	"networkPolicy.enabled":                                 {"networkPolicy.enabled=false"},
	"networkPolicy.webhookFrom":                             {"networkPolicy.webhookFrom[0].ipBlock.cidr=192.0.2.1/32"},
	"networkPolicy.metricsFrom":                             {"networkPolicy.metricsFrom[0].ipBlock.cidr=192.0.2.1/32"},
	"monitoring.enabled":                                    {"monitoring.enabled=true"},
}

// leaves returns the paths of all values; an empty map or list is one.
func leaves(path string, value any) []string {
	m, ok := value.(map[string]any)
	if !ok || len(m) == 0 {
		return []string{path}
	}
	var all []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		below := key
		if path != "" {
			below = path + "." + key
		}
		all = append(all, leaves(below, m[key])...)
	}
	return all
}

func TestEveryValueIsUsed(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root, "deploy/chart/values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := yaml.Unmarshal(data, &values); err != nil {
		t.Fatal(err)
	}
	all := leaves("", values)
	before := chart(t, "libvirt")
	for _, leaf := range all {
		t.Run(leaf, func(t *testing.T) {
			set, known := changes[leaf]
			if !known {
				t.Fatal("changes has no other value for it")
			}
			// Helm runs once for each value.
			if tier.All() && bytes.Equal(before, chart(t, "libvirt", flags(set)...)) {
				t.Errorf("another value changes nothing")
			}
		})
	}
	for leaf := range changes {
		if !slices.Contains(all, leaf) {
			t.Errorf("%s is not a value of the chart", leaf)
		}
	}
}

func flags(set []string) []string {
	var all []string
	for _, one := range set {
		all = append(all, "--set", one)
	}
	return all
}
