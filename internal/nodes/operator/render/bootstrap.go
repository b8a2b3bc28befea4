// SPDX-License-Identifier: Apache-2.0

// Package render writes what a bundle is into files, without a cluster: static
// Pods and the cloud's configuration for the machine that a cluster is installed
// from, or all objects as one text.
package render

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/internal/nodes/operator/bundle"
	"github.com/outrigger/outrigger/internal/nodes/operator/cloudconfig"
	"github.com/outrigger/outrigger/internal/nodes/operator/settings"
	"github.com/outrigger/outrigger/internal/wholefile"
)

// Bootstrap is what the machine needs that a cluster is installed from. Files
// are named as the flags name them.
type Bootstrap struct {
	DestDir            string
	InfrastructureFile string
	ImagesFile         string
	// CloudConfigFile is read only if the infrastructure names a configuration.
	CloudConfigFile string
	Bundles         bundle.Set
	// Warn, if set, is called with problems of what is written.
	Warn func(message string)
}

type inputs struct {
	infra  *configv1.Infrastructure
	images bundle.Images
	config string
}

// Write writes DestDir/bootstrap/NAME-KIND.yaml for each object, and
// DestDir/config/cloud.conf if there is a configuration. Both folders are made
// in any case. Nothing is written unless all can be. It returns the files.
func (b Bootstrap) Write() ([]string, error) {
	if b.DestDir == "" {
		return nil, errors.New("--dest-dir: missing")
	}
	in, err := b.read()
	if err != nil {
		return nil, err
	}
	values, platform, err := settings.Cluster{Infrastructure: in.infra, Images: in.images}.Values()
	if err != nil {
		return nil, err
	}
	values.NoCloudConfig = in.config == ""
	var objects []client.Object
	match := b.Bundles.Find(platform.Type, platform.CloudName, values.Flavor)
	if match != nil {
		if objects, err = match.BootstrapResources(values); err != nil {
			return nil, err
		}
	}
	if b.Warn != nil {
		b.look(platform.Type, match, objects, in.config)
	}
	return b.write(objects, in.config)
}

// look warns if there are no Pods, or Pods that cannot start.
func (b Bootstrap) look(platform string, of *bundle.Bundle, pods []client.Object, config string) {
	if len(pods) == 0 {
		b.Warn(fmt.Sprintf("no bundle has static Pods for platform %s: none are written", platform))
		return
	}
	if !cloudconfig.Known(of.Format()) {
		return
	}
	switch err := cloudconfig.Validate(of.Format(), config); {
	case err != nil && config == "":
		b.Warn(fmt.Sprintf("the manager of %s does not start without a configuration: name one in spec.cloudConfig of the Infrastructure and give --cloud-config-file", of.Platform))
	case err != nil:
		b.Warn(fmt.Sprintf("the manager of %s may not take this configuration: %v", of.Platform, err))
	}
}

// read returns all errors of all files at once.
func (b Bootstrap) read() (in inputs, err error) {
	var errs []error
	fault := func(flag string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("error reading --%s: %w", flag, err))
		}
	}
	text, err := read(b.InfrastructureFile)
	if err == nil {
		in.infra, err = Infrastructure(text)
	}
	fault("cluster-infrastructure-file", err)
	in.images, err = Images(b.ImagesFile)
	fault("images-file", err)
	if in.infra != nil && in.infra.Spec.CloudConfig.Name != "" {
		if b.CloudConfigFile == "" {
			err = fmt.Errorf("missing, and the Infrastructure names the ConfigMap %s in spec.cloudConfig", in.infra.Spec.CloudConfig.Name)
		} else if text, err = read(b.CloudConfigFile); err == nil {
			in.config, err = cloudConfig(text, in.infra.Spec.CloudConfig.Key)
		}
		fault("cloud-config-file", err)
	}
	return in, errors.Join(errs...)
}

func (b Bootstrap) write(objects []client.Object, config string) (names []string, err error) {
	pods, configs := filepath.Join(b.DestDir, "bootstrap"), filepath.Join(b.DestDir, "config")
	files := map[string][]byte{}
	for _, o := range objects {
		// The kubelet of that machine knows no other.
		o.SetNamespace(bundle.SystemNamespace)
		name := filepath.Join(pods, o.GetName()+"-"+strings.ToLower(o.GetObjectKind().GroupVersionKind().Kind)+".yaml")
		if files[name], err = YAML(o); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	for _, folder := range []string{pods, configs} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return nil, fmt.Errorf("--dest-dir: %w", err)
		}
	}
	for _, name := range names {
		err = errors.Join(err, wholefile.Replace(name, files[name], 0o644))
	}
	if config != "" {
		name := filepath.Join(configs, bundle.CloudConfigKey)
		names = append(names, name)
		err = errors.Join(err, wholefile.Replace(name, []byte(config), 0o600)) // it may have a password in it
	}
	if err != nil {
		return nil, fmt.Errorf("--dest-dir: %w", err)
	}
	return names, nil
}
