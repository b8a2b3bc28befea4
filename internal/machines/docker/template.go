// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"text/template"

	"github.com/outrigger/outrigger/internal/loadbalancer"
	"github.com/outrigger/outrigger/provider"
)

// TemplateReader returns what a ConfigMap has under the key "value": the template of a
// load balancer's configuration. Its errors have the classes of package provider.
type TemplateReader func(ctx context.Context, namespace, name string) (string, error)

// ReasonTemplate: the template of a load balancer's configuration is missing or wrong.
const ReasonTemplate = "LoadBalancerTemplateInvalid"

// templateOf reads a template and renders it once, so that a wrong one does not
// break a running load balancer.
func (b *Backend) templateOf(ctx context.Context, namespace, name string) (string, error) {
	if name == "" {
		return "", nil
	}
	if b.Templates == nil {
		return "", because(ReasonTemplate, provider.ErrUnimplemented, "ConfigMap %s/%s cannot be read by this manager", namespace, name)
	}
	text, err := b.Templates(ctx, namespace, name)
	if err == nil {
		_, err = rendered(text, loadbalancer.Config{Port: defaultPort}, defaultPort)
	}
	if err != nil {
		return "", because(ReasonTemplate, provider.Class(err), "customHAProxyConfigTemplateRef: ConfigMap %s/%s: %w", namespace, name, err)
	}
	return text, nil
}

// server is one of the control plane in a template.
type server struct {
	Address string
	Weight  int
}

// maxConfig bounds what a template makes.
const maxConfig = 1 << 20

// rendered returns the configuration that a template makes. The names in it are those
// of Cluster API's own Docker provider.
func rendered(text string, c loadbalancer.Config, target int) ([]byte, error) {
	parsed, err := template.New("").Funcs(template.FuncMap{"JoinHostPort": net.JoinHostPort}).Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", provider.ErrInvalidArgument, err)
	}
	servers := map[string]server{}
	for _, b := range c.Backends {
		servers[b.Name] = server{b.Host, 100}
	}
	out := &bounded{left: maxConfig}
	err = parsed.Execute(out, map[string]any{
		"FrontendControlPlanePort": strconv.Itoa(c.Port), "BackendControlPlanePort": strconv.Itoa(target), "BackendServers": servers, "IPv6": c.IPv6,
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", provider.ErrInvalidArgument, err)
	}
	return []byte(out.text.String()), nil
}

// bounded is a writer with a limit.
type bounded struct {
	text strings.Builder
	left int
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left < 0 {
		return 0, errors.New("the template makes more than 1 MiB")
	}
	return b.text.Write(p)
}

// templatePath is where a load balancer keeps its template: machines come and go
// when the cluster's object is not at hand.
const templatePath = loadbalancer.ConfigPath + ".template"

// configText returns the configuration of a load balancer with or without a template.
func configText(text string, c loadbalancer.Config, target int) ([]byte, error) {
	if text == "" {
		return []byte(c.HAProxy()), nil
	}
	return rendered(text, c, target)
}
