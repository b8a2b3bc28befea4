// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

// boot is what user-data asks of a machine.
type boot struct {
	// endpoint is the API server's, and with it the name of the cluster.
	endpoint   string
	node       string
	providerID string
	// version is the one of kubeadm's configuration, kubelet that of the image.
	version, kubelet string
	initialize       bool
	controlPlane     bool
	// files are those of user-data by path.
	files map[string]string
}

// Where kubeadm's configuration lies in the user-data of the kubeadm bootstrap
// provider.
const (
	initFile = "/run/kubeadm/kubeadm.yaml"
	joinFile = "/run/kubeadm/kubeadm-join-config.yaml"
)

var versionOf = regexp.MustCompile(`v\d+\.\d+\.\d+$`)

// readUserData does what cloud-init and kubeadm would with it.
func readUserData(i *instance, prefix string) (*boot, error) {
	files, err := writtenFiles(expand(i))
	if err != nil {
		return nil, err
	}
	b := &boot{node: i.Name, providerID: prefix + i.ID, files: files, kubelet: versionOf.FindString(i.Image)}
	config, join := files[initFile], files[joinFile]
	switch {
	case config != "":
		b.initialize, b.controlPlane = true, true
	case join != "":
		config = join
	default:
		return nil, fmt.Errorf("user-data writes neither %s nor %s", initFile, joinFile)
	}
	for _, document := range strings.Split("\n"+config, "\n---") {
		if err := b.apply(document); err != nil {
			return nil, err
		}
	}
	if b.endpoint == "" {
		return nil, errors.New("kubeadm's configuration names no endpoint of the control plane")
	}
	return b, nil
}

// expand fills in what Jinja knows of the instance.
func expand(i *instance) string {
	text := i.UserData
	for name, value := range map[string]string{
		"ds.meta_data.local_hostname": i.Name, "ds.meta_data.hostname": i.Name, "local_hostname": i.Name,
		"ds.meta_data.instance_id": i.ID, "v1.instance_id": i.ID, "instance_id": i.ID,
	} {
		text = strings.NewReplacer("{{ "+name+" }}", value, "{{"+name+"}}", value).Replace(text)
	}
	return text
}

func writtenFiles(userData string) (map[string]string, error) {
	var config struct {
		WriteFiles []struct{ Path, Content string } `json:"write_files"`
	}
	if err := yaml.Unmarshal([]byte(userData), &config); err != nil {
		return nil, fmt.Errorf("user-data is not a cloud-config: %w", err)
	}
	files := map[string]string{}
	for _, f := range config.WriteFiles {
		files[f.Path] = f.Content
	}
	return files, nil
}

// kubeadm is what counts of all kinds of its configuration.
type kubeadm struct {
	KubernetesVersion    string `json:"kubernetesVersion"`
	ControlPlaneEndpoint string `json:"controlPlaneEndpoint"`
	Discovery            struct {
		BootstrapToken struct {
			APIServerEndpoint string `json:"apiServerEndpoint"`
		} `json:"bootstrapToken"`
	} `json:"discovery"`
	ControlPlane     *struct{} `json:"controlPlane"`
	NodeRegistration struct {
		Name             string `json:"name"`
		KubeletExtraArgs []struct {
			Name, Value string
		} `json:"kubeletExtraArgs"`
	} `json:"nodeRegistration"`
}

func (b *boot) apply(document string) error {
	var k kubeadm
	if err := yaml.Unmarshal([]byte(document), &k); err != nil {
		return fmt.Errorf("kubeadm's configuration: %w", err)
	}
	b.endpoint = cmp.Or(b.endpoint, k.ControlPlaneEndpoint, k.Discovery.BootstrapToken.APIServerEndpoint)
	b.version = cmp.Or(b.version, k.KubernetesVersion)
	b.controlPlane = b.controlPlane || k.ControlPlane != nil
	b.node = cmp.Or(k.NodeRegistration.Name, b.node)
	for _, arg := range k.NodeRegistration.KubeletExtraArgs {
		if arg.Name == "provider-id" && arg.Value != "" {
			b.providerID = arg.Value
		}
	}
	return nil
}
