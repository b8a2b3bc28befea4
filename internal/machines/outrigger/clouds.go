// SPDX-License-Identifier: Apache-2.0

package outrigger

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
	"github.com/outrigger/outrigger/internal/machines/reconciler"
	"github.com/outrigger/outrigger/provider"
)

// Clouds are the providers of one manager. A cluster uses the provider that it names, or
// else the default. A machine stays at the provider where its creation began. A provider
// is never asked about clusters or machines of another provider.
type Clouds struct {
	byName map[string]*Backend
	// standard is the name of the default provider; empty if there is none.
	standard string
}

var (
	_ reconciler.ClusterBackend = (*Clouds)(nil)
	_ reconciler.MachineBackend = (*Clouds)(nil)
	_ reconciler.Placer         = (*Clouds)(nil)
	_ reconciler.Forgetter      = (*Clouds)(nil)
	_ reconciler.Inventory      = (*Clouds)(nil)
	_ reconciler.Sizer          = (*Clouds)(nil)
)

// NewClouds returns the providers of backends. standard is the name of the default
// provider, or empty.
func NewClouds(standard string, backends ...*Backend) *Clouds {
	c := &Clouds{byName: map[string]*Backend{}, standard: standard}
	for _, b := range backends {
		c.byName[b.options.Name] = b
	}
	return c
}

// Close ends all calls and waits for their end.
func (c *Clouds) Close() {
	for _, b := range c.byName {
		b.Close()
	}
}

// Place implements [reconciler.Placer]. The cluster's spec comes first, then the default
// at the time when it was provisioned, then the current default.
func (c *Clouds) Place(infra reconciler.InfraCluster) string {
	cluster, ok := infra.(*infrav1.OutriggerCluster)
	switch {
	case ok && cluster.Spec.Provider != "":
		return provider.Canonical(cluster.Spec.Provider)
	case ok && cluster.Annotations[infrav1.ProviderAnnotation] != "":
		return cluster.Annotations[infrav1.ProviderAnnotation]
	}
	return c.standard
}

func (c *Clouds) ofMachine(s *reconciler.MachineScope) string {
	if name := s.Infra.GetAnnotations()[infrav1.ProviderAnnotation]; name != "" {
		return name
	}
	return c.Place(s.InfraCluster)
}

// notLoaded is the error of a provider that the manager does not have.
type notLoaded struct{ message string }

func (e notLoaded) Error() string { return e.message }
func (notLoaded) Unwrap() error   { return provider.ErrInvalidArgument }

// Reason implements [reconciler.Reasoner].
func (notLoaded) Reason() string { return "ProviderNotLoaded" }

func (c *Clouds) named(name string) (*Backend, error) {
	if b := c.byName[name]; b != nil {
		return b, nil
	}
	loaded := strings.Join(keys(c.byName), ", ")
	switch {
	case name != "" && loaded == "":
		return nil, notLoaded{fmt.Sprintf("the manager has not loaded provider %s, nor any other: start it with --provider (CLOUD_PROVIDER) or --more-providers", name)}
	case name != "":
		return nil, notLoaded{fmt.Sprintf("the manager has not loaded provider %s; it has %s: start it with --more-providers=%s", name, loaded, name)}
	case loaded == "":
		return nil, fmt.Errorf("%w: the manager has no provider for Outrigger kinds: start it with --provider (CLOUD_PROVIDER)", provider.ErrInvalidArgument)
	}
	return nil, notLoaded{fmt.Sprintf("spec.provider of the OutriggerCluster is not set and the manager has no default, which --provider (CLOUD_PROVIDER) is: name one of %s", loaded)}
}

// EnsureCluster implements [reconciler.ClusterBackend].
func (c *Clouds) EnsureCluster(ctx context.Context, s *reconciler.ClusterScope) (reconciler.ClusterState, error) {
	b, err := c.named(c.Place(s.Infra))
	if err != nil {
		return reconciler.ClusterState{}, err
	}
	return b.EnsureCluster(ctx, s)
}

// DeleteCluster implements [reconciler.ClusterBackend]. If the provider is not loaded,
// only a cluster that is not ready can be deleted: it has no resources.
func (c *Clouds) DeleteCluster(ctx context.Context, s *reconciler.ClusterScope) (bool, error) {
	name := c.Place(s.Infra)
	b, err := c.named(name)
	if err == nil {
		return b.DeleteCluster(ctx, s)
	}
	if _, status := s.Infra.ContractCluster(); name == "" || !status.Ready {
		return true, nil
	}
	return false, err
}

// EnsureMachine implements [reconciler.MachineBackend].
func (c *Clouds) EnsureMachine(ctx context.Context, s *reconciler.MachineScope) (reconciler.MachineState, error) {
	b, err := c.named(c.ofMachine(s))
	if err != nil {
		return reconciler.MachineState{}, err
	}
	return b.EnsureMachine(ctx, s)
}

// DeleteMachine implements [reconciler.MachineBackend]. If the provider is not loaded, only
// a machine whose creation never began can be deleted.
func (c *Clouds) DeleteMachine(ctx context.Context, s *reconciler.MachineScope) (bool, error) {
	b, err := c.named(c.ofMachine(s))
	if err == nil {
		return b.DeleteMachine(ctx, s)
	}
	if spec, _ := s.Infra.ContractMachine(); s.Began.IsZero() && spec.ProviderID == "" {
		return true, nil
	}
	return false, err
}

// Forget implements [reconciler.Forgetter].
func (c *Clouds) Forget(name types.NamespacedName) {
	for _, b := range c.byName {
		b.Forget(name)
	}
}

// Owned implements [reconciler.Inventory].
func (c *Clouds) Owned(ctx context.Context, s *reconciler.ClusterScope) ([]reconciler.Owned, error) {
	b, err := c.named(c.Place(s.Infra))
	if err != nil {
		return nil, err
	}
	return b.Owned(ctx, s)
}

// Remove implements [reconciler.Inventory].
func (c *Clouds) Remove(ctx context.Context, s *reconciler.ClusterScope, id string) error {
	b, err := c.named(c.Place(s.Infra))
	if err != nil {
		return err
	}
	return b.Remove(ctx, s, id)
}

// MachineSize implements [reconciler.Sizer]. The size of an instance type depends on the
// provider, which is unknown for a template without a cluster if there are several.
func (c *Clouds) MachineSize(ctx context.Context, t reconciler.InfraTemplate, infra reconciler.InfraCluster) (infrav1.MachineTemplateStatus, error) {
	if b := c.byName[c.Place(infra)]; b != nil && (infra != nil || len(c.byName) == 1) {
		return b.MachineSize(ctx, t, infra)
	}
	if template, ok := t.(*infrav1.OutriggerMachineTemplate); ok && template.Spec.Template.Spec.InstanceType == "" {
		return requestedSize(&template.Spec.Template.Spec), nil
	}
	return infrav1.MachineTemplateStatus{}, nil
}
