// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Names that bundles and their surroundings agree on.
const (
	// DefaultNamespace stands in manifests for the namespace of the installation.
	DefaultNamespace = "openshift-cloud-controller-manager"
	// SystemNamespace is the only other one that a manifest may name.
	SystemNamespace = "kube-system"
	// Manager and NodeManager are the containers that rules apply to.
	Manager     = "cloud-controller-manager"
	NodeManager = "cloud-node-manager"
	// CloudConfig is the ConfigMap, and CloudConfigKey its key, with what the
	// cloud provider reads.
	CloudConfig    = "cloud-conf"
	CloudConfigKey = "cloud.conf"
	// TrustedCA is the ConfigMap with the authorities to trust.
	TrustedCA = "ccm-trusted-ca"
	// OperatorImage is the key in images.json of our own image.
	OperatorImage = "cloudControllerManagerOperator"
)

// Flavor is what kind of cluster the objects are for.
type Flavor string

// Flavors.
const (
	// OpenShift has nodes with the label node-role.kubernetes.io/master, images
	// with bash, /etc/kubernetes/apiserver-url.env, and accounts that the
	// installation of the operator brings.
	OpenShift Flavor = "openshift"
	// Kubernetes has nodes with the label node-role.kubernetes.io/control-plane
	// and images without a shell; accounts and their rights are rendered too.
	Kubernetes Flavor = "kubernetes"
)

// Flavors are all of them.
var Flavors = []Flavor{OpenShift, Kubernetes}

// Values are what a cluster puts into a bundle. The name of a field's template value is
// in its comment; docs/ccm-operator.md has all that templates may use.
type Values struct {
	// Flavor (.flavor) is OpenShift if empty.
	Flavor Flavor
	// Namespace (.namespace) is that of all objects but those of kube-system:
	// DefaultNamespace if empty.
	Namespace string
	// Images are those of images.json. Only the keys that the bundle names are
	// needed.
	Images Images
	// InfrastructureName (.infrastructureName) is the name that the cluster's
	// machines carry, such as mycluster-x7k2p.
	InfrastructureName string
	// SingleReplica says that nothing runs twice.
	SingleReplica bool
	// Proxy is what reaches what is outside; nil is none.
	Proxy *Proxy
	// FeatureGates (.featureGates) are those that the managers get, such as
	// A=true,B=true. Containers that do not ask for them do not get them.
	FeatureGates string
	// TLSMinVersion (.tlsMinVersion) and TLSCipherSuites (.tlsCipherSuites) are
	// what servers obey, as flags want them; empty means the program's own.
	TLSMinVersion   string
	TLSCipherSuites string
	// PublicEndpoint (.enablePublicEndpoint) says that the cloud's API is reached
	// from outside its network.
	PublicEndpoint bool
	// Identity is what managers have in place of a Secret; nil is nothing.
	Identity *Identity
	// NoCloudConfig (.cloudConfigGiven is its opposite) says that the machine of a
	// bootstrap gets no configuration of its cloud.
	NoCloudConfig bool
	// AdditionalLabels (.additionalLabels) are what Nodes get in addition, such
	// as key=value.
	AdditionalLabels string
}

// Proxy is the proxy configuration of programs. Empty values are not set.
type Proxy struct{ HTTP, HTTPS, None string }

func (v Values) complete() (Values, error) {
	if v.Flavor == "" {
		v.Flavor = OpenShift
	}
	if !slices.Contains(Flavors, v.Flavor) {
		return v, fmt.Errorf("flavor %q: want openshift or kubernetes", v.Flavor)
	}
	if v.Namespace == "" {
		v.Namespace = DefaultNamespace
	}
	if err := v.Identity.Validate(); err != nil {
		return v, fmt.Errorf("identity: %w", err)
	}
	if problems := validation.IsDNS1123Label(v.Namespace); len(problems) > 0 {
		return v, fmt.Errorf("namespace %q: %s", v.Namespace, strings.Join(problems, "; "))
	}
	return v, nil
}

func (v Values) data(m *Metadata) map[string]any {
	replicas := 2
	if v.SingleReplica {
		replicas = 1
	}
	secret := "" // the one that a manager reads through the API
	if len(m.Secrets) > 0 {
		secret = m.Secrets[0]
	}
	_, nodeManager := m.Containers[NodeManager]
	return map[string]any{
		"platform": m.Platform, "cloudproviderName": m.Platform, "provider": m.Provider, "kind": strings.ToLower(m.Platform),
		"flavor": string(v.Flavor), "openshift": v.Flavor == OpenShift, "namespace": v.Namespace,
		"accounts": m.Accounts, "cloudConfigGiven": !v.NoCloudConfig, "replicas": replicas, "singleReplica": v.SingleReplica, "nodeManager": nodeManager,
		"images": v.imageData(m), "infrastructureName": v.InfrastructureName, "featureGates": v.FeatureGates,
		"tlsMinVersion": v.TLSMinVersion, "tlsCipherSuites": v.TLSCipherSuites,
		"globalCredsSecretNamespace": v.Namespace, "globalCredsSecretName": secret,
		"enablePublicEndpoint": v.PublicEndpoint, "additionalLabels": v.AdditionalLabels,
	}
}

// imageData has the images of the bundle's containers, also by the names that
// OpenShift's own templates use.
func (v Values) imageData(m *Metadata) map[string]string {
	all := map[string]string{}
	maps.Copy(all, v.Images)
	if image := v.Images[OperatorImage]; image != "" {
		all["CloudControllerManagerOperator"], all["Operator"] = image, image
	}
	for container, name := range map[string]string{Manager: "CloudControllerManager", NodeManager: "CloudNodeManager"} {
		if c, has := m.Containers[container]; has {
			all[name] = v.Images[c.Image]
		}
	}
	return all
}
