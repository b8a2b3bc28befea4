// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/internal/nodes/operator/cloudconfig"
	"github.com/outrigger/outrigger/internal/nodes/operator/failure"
)

// MetadataFile is the file that makes a folder a bundle.
const MetadataFile = "bundle.yaml"

// apiVersion and kind of bundle.yaml.
const (
	apiVersion = "ccm.outrigger.dev/v1alpha1"
	kind       = "Bundle"
)

// Metadata is bundle.yaml; docs/ccm-operator.md describes its keys.
type Metadata struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Platform is the cloud's name in Infrastructure, such as AWS.
	Platform string `json:"platform"`
	// CloudName, if set, limits the bundle to one cloud of the platform, by
	// Infrastructure's status.platformStatus.azure.cloudName. Such a bundle wins over
	// one of the same platform without it.
	CloudName string `json:"cloudName,omitempty"`
	// Provider is the value of --cloud-provider.
	Provider string   `json:"provider"`
	Flavors  []Flavor `json:"flavors,omitempty"`
	// ConfigFormat is for [Metadata.Format].
	ConfigFormat string `json:"configFormat,omitempty"`
	// Optional means that it is not a failure when images.json lacks the bundle's images.
	Optional bool `json:"optional,omitempty"`
	// Containers are the containers, by name, whose image comes from images.json.
	Containers map[string]Container `json:"containers"`
	// Secrets are those that containers read through the API. Mounted ones are listed at
	// their containers.
	Secrets []string `json:"secrets,omitempty"`
	// Accounts are those of kube-system that a provider requests from its client builder.
	Accounts []string `json:"accounts,omitempty"`
}

// Container is what a container of some name needs.
type Container struct {
	// Image is a key of images.json.
	Image string `json:"image"`
	// Program is what a base starts; KubernetesProgram where images of plain
	// Kubernetes have it elsewhere.
	Program           string `json:"program,omitempty"`
	KubernetesProgram string `json:"kubernetesProgram,omitempty"`
	// Flags are templates; one that is empty in the end is left out.
	Flags []string `json:"flags,omitempty"`
	// OpenShift is for the bases whose names end in -on-openshift.
	OpenShift    Script `json:"openshift,omitzero"`
	FeatureGates bool   `json:"featureGates,omitempty"`
	// CloudConfig is the file with the cloud's configuration; empty: it reads none.
	CloudConfig string        `json:"cloudConfig,omitempty"`
	Secrets     []SecretMount `json:"secrets,omitempty"`
}

// Script is how a program is started there: Flags are all of the program's, templates of
// one or several, each Indent from the line's beginning.
type Script struct {
	Flags  []string `json:"flags,omitempty"`
	Indent int      `json:"indent,omitempty"`
}

// SecretMount is a Secret and the folder that it is mounted at.
type SecretMount struct {
	Name      string `json:"name"`
	MountPath string `json:"mountPath"`
}

func parseMetadata(text string) (m Metadata, err error) {
	raw, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		return m, fmt.Errorf("%s: error converting YAML to JSON: %w", MetadataFile, err)
	}
	if err := decodeStrict(raw, &m); err != nil {
		return m, fmt.Errorf("%s: error unmarshaling JSON: while decoding JSON: %w", MetadataFile, err)
	}
	if err := m.check(); err != nil {
		return m, fmt.Errorf("%s: %w", MetadataFile, err)
	}
	if len(m.Flavors) == 0 {
		m.Flavors = Flavors
	}
	return m, nil
}

// providerName is what may be a value of --cloud-provider, and part of a name.
var providerName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,40}[a-z0-9])?$`)

func (m *Metadata) check() error {
	var faults failure.Faults
	faults.AddIf(m.APIVersion != apiVersion || m.Kind != kind, "apiVersion %q, kind %q: want %s and %s", m.APIVersion, m.Kind, apiVersion, kind)
	faults.AddIf(m.Platform == "", "platform: missing; give what Infrastructure calls the cloud, such as AWS")
	named := len(validation.IsValidLabelValue(m.Platform)) == 0 && providerName.MatchString(strings.ToLower(m.Platform))
	faults.AddIf(m.Platform != "" && !named, "platform %q: want letters, digits and -, because it is the value of a label and part of names", m.Platform)
	faults.AddIf(!providerName.MatchString(m.Provider), "provider %q: want the value of --cloud-provider: a-z, 0-9 and -", m.Provider)
	faults.AddIf(m.ConfigFormat != "" && !cloudconfig.Known(cloudconfig.Platform(m.ConfigFormat)),
		"configFormat %q: want the name of a built-in bundle, or none for a configuration that nobody looks at", m.ConfigFormat)
	for _, f := range m.Flavors {
		faults.AddIf(!slices.Contains(Flavors, f), "flavors: %q: want openshift or kubernetes", f)
	}
	faults.AddIf(len(m.Containers) == 0, "containers: missing; name the containers whose images come from images.json, such as %s", Manager)
	for _, name := range slices.Sorted(maps.Keys(m.Containers)) {
		m.Containers[name].check("containers."+name+".", &faults)
	}
	for _, name := range m.Accounts {
		faults.AddIf(len(validation.IsDNS1123Subdomain(name)) > 0, "accounts: %q: want the name of a ServiceAccount of %s", name, SystemNamespace)
	}
	return errors.Join(faults...)
}

func (c Container) check(at string, faults *failure.Faults) {
	faults.AddIf(c.Image == "", "%simage: missing; give a key of images.json, such as cloudControllerManagerAWS", at)
	file := path.IsAbs(c.CloudConfig) && path.Clean(c.CloudConfig) == c.CloudConfig && path.Dir(c.CloudConfig) != "/"
	faults.AddIf(c.CloudConfig != "" && !file, "%scloudConfig %q: want the absolute path of a file in a folder of its own", at, c.CloudConfig)
	for _, s := range c.Secrets {
		faults.AddIf(len(validation.IsDNS1123Subdomain(s.Name)) > 0 || !path.IsAbs(s.MountPath),
			"%ssecrets: %q at %q: want a Secret's name and an absolute path", at, s.Name, s.MountPath)
	}
}

// Format returns the format of the cloud's configuration. If package cloudconfig does
// not know the platform, it accepts any configuration.
func (m *Metadata) Format() cloudconfig.Platform {
	return cloudconfig.Platform(cmp.Or(m.ConfigFormat, strings.ToLower(m.Platform)))
}

// For reports whether the bundle is for a kind of cluster.
func (m *Metadata) For(f Flavor) bool { return slices.Contains(m.Flavors, f) }

// SecretNames returns all Secrets that the operands need.
func (m *Metadata) SecretNames() []string {
	all := slices.Clone(m.Secrets)
	for _, c := range m.Containers {
		for _, s := range c.Secrets {
			all = append(all, s.Name)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// ImageKeys returns the keys of images.json that the bundle needs.
func (m *Metadata) ImageKeys() []string {
	var keys []string
	for _, c := range m.Containers {
		keys = append(keys, c.Image)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}
