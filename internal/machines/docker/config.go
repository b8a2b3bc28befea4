// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/moby/moby/client"

	"github.com/outrigger/outrigger/provider"
)

// Config says which engine, and what is made there when objects do not say.
type Config struct {
	// Host, APIVersion, TLSVerify and CertPath are what DOCKER_HOST,
	// DOCKER_API_VERSION, DOCKER_TLS_VERIFY and DOCKER_CERT_PATH say to Docker's
	// own clients.
	Host       string
	APIVersion string
	TLSVerify  bool
	CertPath   string

	// NodeImage is the image of a machine; without a tag the version of
	// Kubernetes is the tag.
	NodeImage string
	// LoadBalancerImage is that of a cluster that names none.
	LoadBalancerImage string
	// AdvertiseHost is the name or address under which others reach the
	// engine's host. With it control planes are reached at a port of that host,
	// without it at a port of the host's address in the cluster's network, which
	// only the engine's host and its containers reach.
	AdvertiseHost string
	// Pull fetches images that the engine lacks.
	Pull bool
}

// Defaults of flags.
const (
	DefaultHost              = "unix:///var/run/docker.sock"
	DefaultNodeImage         = "outrigger/node"
	DefaultLoadBalancerImage = "outrigger/cluster-loadbalancer:latest"
)

// AddFlags adds the flags; getenv is where the defaults come from, as they do
// for Docker's own clients.
func (c *Config) AddFlags(fs *flag.FlagSet, getenv func(string) string) {
	fs.StringVar(&c.Host, "docker-host", cmp.Or(getenv("DOCKER_HOST"), DefaultHost), "Docker Engine of the Docker kinds: unix:///PATH or tcp://HOST:PORT (DOCKER_HOST)")
	fs.StringVar(&c.APIVersion, "docker-api-version", getenv("DOCKER_API_VERSION"), "version of the engine's API; by default the newest that both know (DOCKER_API_VERSION)")
	fs.BoolVar(&c.TLSVerify, "docker-tls-verify", getenv("DOCKER_TLS_VERIFY") != "", "speak TLS with the certificates of --docker-cert-path (DOCKER_TLS_VERIFY)")
	fs.StringVar(&c.CertPath, "docker-cert-path", getenv("DOCKER_CERT_PATH"), "folder with ca.pem, cert.pem and key.pem (DOCKER_CERT_PATH)")
	fs.StringVar(&c.NodeImage, "docker-node-image", DefaultNodeImage, "image of a machine that names none; without a tag the version of Kubernetes is the tag")
	fs.StringVar(&c.LoadBalancerImage, "docker-loadbalancer-image", DefaultLoadBalancerImage, "image of the load balancer of a cluster that names none")
	fs.StringVar(&c.AdvertiseHost, "docker-advertise-host", "", "name or address of the engine's host at which control planes are reached; by default the host of a tcp:// engine, and otherwise its address in the cluster's own network, which the engine's host and all its containers reach")
	fs.BoolVar(&c.Pull, "docker-pull", true, "pull images that the engine lacks")
}

var apiVersion = regexp.MustCompile(`^[0-9]+\.[0-9]+$`)

func (c Config) validate() error {
	var errs []error
	if _, err := client.ParseHostURL(c.Host); err != nil {
		errs = append(errs, bad("docker-host", "%q is not a unix:///PATH or tcp://HOST:PORT", c.Host))
	}
	if c.APIVersion != "" && !apiVersion.MatchString(c.APIVersion) {
		errs = append(errs, bad("docker-api-version", "%q is not a version such as 1.41", c.APIVersion))
	}
	switch {
	case c.TLSVerify && c.CertPath == "":
		errs = append(errs, bad("docker-cert-path", "--docker-tls-verify (DOCKER_TLS_VERIFY) needs it"))
	case c.TLSVerify && strings.HasPrefix(c.Host, "unix:"):
		errs = append(errs, bad("docker-tls-verify", "a unix socket speaks no TLS"))
	}
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

// advertised returns the host of published ports; empty if none is published.
func (c Config) advertised() string {
	if c.AdvertiseHost != "" {
		return c.AdvertiseHost
	}
	u, err := url.Parse(c.Host)
	if err != nil || u.Scheme == "unix" {
		return ""
	}
	if host, _, err := net.SplitHostPort(u.Host); err == nil {
		return host
	}
	return u.Host
}

// options returns the options of Docker's client. It does not read the environment of
// this process, which only sets the defaults of flags.
func (c Config) options() []client.Opt {
	list := []client.Opt{client.WithHost(c.Host), client.WithUserAgent("outrigger")}
	if c.APIVersion != "" {
		list = append(list, client.WithAPIVersion(c.APIVersion))
	}
	if c.TLSVerify {
		file := func(name string) string { return filepath.Join(c.CertPath, name) }
		list = append(list, client.WithTLSClientConfig(file("ca.pem"), file("cert.pem"), file("key.pem")), client.WithScheme("https"))
	}
	return list
}

func bad(name, format string, args ...any) error {
	env := strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
	switch name {
	case "docker-host", "docker-api-version", "docker-tls-verify", "docker-cert-path":
		name += " (" + env + ")"
	}
	return fmt.Errorf("%w: --%s: %s", provider.ErrInvalidArgument, name, fmt.Sprintf(format, args...))
}
