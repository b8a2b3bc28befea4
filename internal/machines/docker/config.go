// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/moby/moby/client"

	"github.com/outrigger/outrigger/internal/dockerengine"
	"github.com/outrigger/outrigger/provider"
)

// Config says which engine, and what is made there when objects do not say. Its tags are
// settings of capi-manager. Those with a variable are what it says to Docker's own clients,
// to which any text in DOCKER_TLS_VERIFY is true.
type Config struct {
	Host       string `flag:"docker-host" env:"DOCKER_HOST" default:"unix:///var/run/docker.sock" usage:"Docker Engine of the Docker kinds: unix:///PATH or tcp://HOST:PORT"`
	APIVersion string `flag:"docker-api-version" env:"DOCKER_API_VERSION" usage:"version of the engine's API; by default the newest that both know"`
	TLSVerify  bool   `flag:"docker-tls-verify" env:"DOCKER_TLS_VERIFY" usage:"speak TLS with the certificates of --docker-cert-path; of the variable any text is true"`
	CertPath   string `flag:"docker-cert-path" env:"DOCKER_CERT_PATH" usage:"folder with ca.pem, cert.pem and key.pem"`

	NodeImage         string `flag:"docker-node-image" default:"outrigger/node" usage:"image of a machine that names none; without a tag the version of Kubernetes is the tag"`
	LoadBalancerImage string `flag:"docker-loadbalancer-image" default:"outrigger/cluster-loadbalancer:latest" usage:"image of the load balancer of a cluster that names none"`
	// AdvertiseHost is that of published ports. Without it control planes are reached at
	// the host's address in the cluster's network.
	AdvertiseHost string `flag:"docker-advertise-host" usage:"name or address of the engine's host at which control planes are reached; by default the host of a tcp:// engine, and otherwise its address in the cluster's own network, which the engine's host and all its containers reach"`
	Pull          bool   `flag:"docker-pull" default:"true" usage:"pull images that the engine lacks"`
}

func (c Config) validate() error {
	errs := []error{dockerengine.Check(c.Host, c.APIVersion, c.TLSVerify, c.CertPath, bad)}
	for name, image := range map[string]string{"docker-node-image": c.NodeImage, "docker-loadbalancer-image": c.LoadBalancerImage} {
		if image == "" || strings.ContainsAny(image, " \t\n") {
			errs = append(errs, bad(name, "%q is not an image", image))
		}
	}
	if strings.ContainsAny(c.AdvertiseHost, " /") {
		errs = append(errs, bad("docker-advertise-host", "%q is not a name or address", c.AdvertiseHost))
	}
	return errors.Join(errs...)
}

// warnings returns warnings about settings that are allowed but unwise, or will not
// work.
func (c Config) warnings() (list []string) {
	if u, err := client.ParseHostURL(c.Host); err == nil {
		switch info, missing := os.Stat(u.Host); {
		case u.Scheme == "tcp" && !c.TLSVerify:
			list = append(list, "the Docker Engine at "+c.Host+" is spoken to without TLS: whoever reaches that port controls its host, and whoever is in between reads the secrets of clusters: "+
				"have the engine ask for certificates, and set --docker-tls-verify (DOCKER_TLS_VERIFY) and --docker-cert-path (DOCKER_CERT_PATH)")
		case u.Scheme == "unix" && missing == nil && info.Mode().Type() != os.ModeSocket:
			list = append(list, u.Host+" is not a socket, so the Docker kinds wait: where clusterctl has installed this, set OUTRIGGER_DOCKER_SOCKET to that of the node, "+
				"or OUTRIGGER_DOCKER_HOST to an engine elsewhere; otherwise set --docker-host (DOCKER_HOST)")
		}
	}
	return list
}

// advertised returns the host of published ports, an IPv6 address without brackets; empty
// if none is published.
func (c Config) advertised() string {
	if c.AdvertiseHost != "" {
		return strings.Trim(c.AdvertiseHost, "[]")
	}
	u, err := url.Parse(c.Host)
	if err != nil || u.Scheme == "unix" {
		return ""
	}
	if host, _, err := net.SplitHostPort(u.Host); err == nil {
		return host
	}
	return u.Hostname()
}

func bad(name, format string, args ...any) error {
	env := strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
	switch name {
	case "docker-host", "docker-api-version", "docker-tls-verify", "docker-cert-path":
		name += " (" + env + ")"
	}
	return fmt.Errorf("%w: --%s: %s", provider.ErrInvalidArgument, name, fmt.Sprintf(format, args...))
}
