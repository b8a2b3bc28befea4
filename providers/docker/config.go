// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"errors"
	"strings"

	"github.com/outrigger/outrigger/internal/dockerengine"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
)

// Name is the provider's name on command lines.
const Name = "docker"

func init() { provider.AddCloudProvider(Name, NewManager()) }

// Config is the provider's configuration. The variables are those of Docker's
// own clients where these have one.
type Config struct {
	Host       string `flag:"docker-host" env:"DOCKER_HOST" default:"unix:///var/run/docker.sock" usage:"where the engine is: unix:///PATH or tcp://HOST:PORT"`
	APIVersion string `flag:"docker-api-version" env:"DOCKER_API_VERSION" usage:"version of the engine's API, such as 1.41; by default the newest that both know"`
	TLSVerify  bool   `flag:"docker-tls-verify" env:"DOCKER_TLS_VERIFY" usage:"speak TLS with the certificates of -docker-cert-path"`
	CertPath   string `flag:"docker-cert-path" env:"DOCKER_CERT_PATH" usage:"folder with ca.pem, cert.pem and key.pem"`

	Image   string `flag:"docker-podvm-image" env:"DOCKER_PODVM_IMAGE" default:"outrigger/podvm:latest" usage:"container image of the pod VM; the engine must have it"`
	Network string `flag:"docker-network-name" env:"DOCKER_NETWORK_NAME" default:"bridge" usage:"network of the containers"`

	BalancerImage string `flag:"docker-loadbalancer-image" env:"DOCKER_LOADBALANCER_IMAGE" default:"outrigger/cluster-loadbalancer:latest" usage:"container image of load balancers, which a cloud controller manager makes; the engine must have it"`

	NodeCluster string `flag:"docker-node-cluster" env:"DOCKER_NODE_CLUSTER" usage:"show the containers of a cluster of Cluster API or kind as instances too, by its name there, or by its key where this project's manager made it; for a cloud controller manager"`

	CPUs   int64 `flag:"docker-cpus" env:"DOCKER_CPUS" default:"0" min:"0" max:"512" usage:"CPUs of a pod that asks for none; 0 means no limit"`
	Memory int64 `flag:"docker-memory" env:"DOCKER_MEMORY" default:"0" unit:"MiB" min:"0" usage:"memory of a pod that asks for none; 0 means no limit"`
}

// NewManager returns a manager with nothing set.
func NewManager() *config.Manager[Config] {
	return config.New(Name, func(c Config) (provider.Provider, error) { return New(c) }).NoImport()
}

// validate reports everything that is wrong whatever the engine says.
func (c Config) validate() error {
	errs := []error{config.Check(c), dockerengine.Check(c.Host, c.APIVersion, c.TLSVerify, c.CertPath, bad)}
	if c.Image == "" {
		errs = append(errs, bad("docker-podvm-image", "it is empty"))
	}
	if c.Network == "" || c.Network == "host" || c.Network == "none" || strings.HasPrefix(c.Network, "container:") {
		errs = append(errs, bad("docker-network-name", "%q gives a container no address of its own", c.Network))
	}
	return errors.Join(errs...)
}

// bad returns the error about a setting, by the name of its flag.
func bad(flag, format string, args ...any) error {
	return config.Wrong[Config](flag, format, args...)
}
