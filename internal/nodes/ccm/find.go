// SPDX-License-Identifier: Apache-2.0

package ccm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/outrigger/outrigger/internal/providerid"
	"github.com/outrigger/outrigger/provider"
)

// Reasons why a Node cannot be initialized, for Events and metrics.
const (
	ReasonInstanceNotFound  = "InstanceNotFound"
	ReasonInstanceAmbiguous = "InstanceAmbiguous"
	ReasonInstanceTaken     = "InstanceTaken"
	ReasonForeign           = "ForeignProviderID"
	ReasonNoAddresses       = "InstanceHasNoAddresses"
	ReasonNodeIP            = "NodeIPNotOfInstance"
	ReasonNoTags            = "InstanceTagsUnknown"
	ReasonCredentials       = "CloudCredentialsRefused"
	ReasonUnavailable       = "CloudUnavailable"
	ReasonCloud             = "CloudError"
)

type problem struct {
	reason string
	error
}

func (p problem) Unwrap() error { return p.error }

func reasonOf(err error) string {
	var p problem
	switch class := provider.Class(err); {
	case errors.As(err, &p):
		return p.reason
	case errors.Is(err, errNoTags):
		return ReasonNoTags
	case class == provider.ErrNotFound:
		return ReasonInstanceNotFound
	case class == provider.ErrUnauthenticated, class == provider.ErrPermissionDenied:
		return ReasonCredentials
	case class == provider.ErrUnavailable, class == provider.ErrQuota, class == provider.ErrCapacity, errors.Is(err, context.DeadlineExceeded):
		return ReasonUnavailable
	}
	return ReasonCloud
}

func (c *Cloud) find(ctx context.Context, node *v1.Node) (*provider.Instance, error) {
	if node.Spec.ProviderID == "" {
		return c.byName(ctx, node)
	}
	ref, ours := providerid.Parse(c.options.Name, node.Spec.ProviderID)
	if !ours {
		return nil, problem{ReasonForeign, fmt.Errorf("providerID %s is none of provider %s", node.Spec.ProviderID, c.options.Name)}
	}
	instance, err := c.fleet.lookUp(ctx, ref.ID)
	if foreignID(err) {
		return nil, problem{ReasonForeign, fmt.Errorf("providerID %s: %w", node.Spec.ProviderID, err)}
	}
	if err != nil {
		return nil, err
	}
	if ref.Region != "" && instance.Region != "" && ref.Region != instance.Region {
		return nil, problem{ReasonForeign, fmt.Errorf("providerID %s is of region %s, but instance %s is in %s", node.Spec.ProviderID, ref.Region, ref.ID, instance.Region)}
	}
	return instance, nil
}

// foreignID reports whether the provider rejects ids of that form. The Node belongs to
// another cloud then.
func foreignID(err error) bool { return errors.Is(err, provider.ErrUnimplemented) }

// byName finds the instance of a Node without providerID by the Node's name. If the
// last list has none it lists again: the list may be older than the instance.
func (c *Cloud) byName(ctx context.Context, node *v1.Node) (*provider.Instance, error) {
	if err := c.learnClusterTags(ctx); err != nil {
		return nil, err
	}
	now := c.options.Now()
	fresh := func(ctx context.Context) (*inventory, error) { return c.fleet.since(ctx, now.Add(-time.Second)) }
	for _, listing := range []func(context.Context) (*inventory, error){c.fleet.recent, fresh} {
		list, err := listing(ctx)
		if err != nil {
			return nil, err
		}
		matches := named(list, node)
		switch {
		case len(matches) == 1:
			return matches[0], c.checkFree(matches[0], node)
		case len(matches) > 1:
			return nil, problem{ReasonInstanceAmbiguous, fmt.Errorf("%d instances are called %s, such as %s and %s: start the kubelet with --provider-id", len(matches), node.Name, matches[0].ID, matches[1].ID)}
		}
	}
	return nil, problem{ReasonInstanceNotFound, fmt.Errorf("%w: no instance of provider %s with the tags %v is called %s, and the Node has no providerID: check --instance-tags and the host's name, or start the kubelet with --provider-id", provider.ErrNotFound, c.options.Name, c.fleet.matches(), node.Name)}
}

// named returns the instances that may be the Node's: those with its name, or else
// those whose tag TagPod is its name.
func named(list *inventory, node *v1.Node) []*provider.Instance {
	var byName, byTag []*provider.Instance
	for _, i := range list.byID {
		switch {
		case i.State == provider.StateDeleting:
		case hasName(node, i.Name):
			byName = append(byName, i)
		case node.Name == i.Tags[provider.TagPod]:
			byTag = append(byTag, i)
		}
	}
	if len(byName) == 0 {
		byName = byTag
	}
	slices.SortFunc(byName, func(a, b *provider.Instance) int { return strings.Compare(a.ID, b.ID) })
	return byName
}

// hasName reports whether a Node or its host has the name, with or without a domain.
func hasName(node *v1.Node, name string) bool {
	if name == "" {
		return false
	}
	names := []string{node.Name, node.Labels[v1.LabelHostname]}
	for _, a := range node.Status.Addresses {
		if a.Type == v1.NodeHostName {
			names = append(names, a.Address)
		}
	}
	return slices.ContainsFunc(names, func(candidate string) bool {
		host, _, _ := strings.Cut(candidate, ".")
		return strings.EqualFold(candidate, name) || strings.EqualFold(host, name)
	})
}

// checkFree returns an error if the instance belongs to another Node already: a
// kubelet may claim any name.
func (c *Cloud) checkFree(i *provider.Instance, node *v1.Node) error {
	for _, other := range c.others(node) {
		if ref, ours := providerid.Parse(c.options.Name, other.Spec.ProviderID); ours && ref.ID == i.ID {
			return problem{ReasonInstanceTaken, fmt.Errorf("instance %s, which is called like Node %s, is that of Node %s", i.ID, node.Name, other.Name)}
		}
	}
	return nil
}

func (c *Cloud) others(node *v1.Node) []*v1.Node {
	if c.nodes == nil {
		return nil
	}
	all, _ := c.nodes.List(labels.Everything()) // a cache never fails
	return slices.DeleteFunc(slices.Clone(all), func(n *v1.Node) bool { return n.Name == node.Name })
}

// learnClusterTags looks up the instances of a few Nodes with a providerID to learn the
// tags by which instances are listed. If tags are configured it does nothing.
func (c *Cloud) learnClusterTags(ctx context.Context) error {
	if len(c.fleet.matches()) > 0 {
		return nil
	}
	asked := 0
	for _, node := range c.others(&v1.Node{}) {
		ref, ours := providerid.Parse(c.options.Name, node.Spec.ProviderID)
		if !ours {
			continue
		}
		_, err := c.fleet.get(ctx, ref.ID)
		if err == nil && len(c.fleet.matches()) > 0 {
			return nil
		}
		if err != nil && !errors.Is(err, provider.ErrNotFound) && !errors.Is(err, provider.ErrInvalidArgument) {
			return err
		}
		if asked++; asked == 3 {
			break
		}
	}
	return fmt.Errorf("%w: %w", provider.ErrInvalidArgument, errNoTags)
}

// Format is a way to write providerIDs. All of them are read.
type Format string

// Formats.
const (
	// FormatAuto is FormatOutrigger for instances that Cluster API's kind
	// OutriggerMachine made, whose providerID Cluster API compares with that of
	// the Node, and FormatProvider for others.
	FormatAuto Format = "auto"
	// FormatProvider is <provider>://<id>, and at Alibaba Cloud
	// alicloud://<region>.<id>.
	FormatProvider Format = "provider"
	// FormatOutrigger is outrigger://<provider>/<id>.
	FormatOutrigger Format = "outrigger"
)

// tagRole is on instances that the kind OutriggerMachine made.
const tagRole = "outrigger-role"

func (o *Options) providerID(i *provider.Instance) string {
	_, machine := i.Tags[tagRole]
	switch {
	case o.Format == FormatOutrigger, o.Format == FormatAuto && machine:
		return "outrigger://" + o.Name + "/" + i.ID
	case o.Name == "alibabacloud" && i.Region != "":
		return "alicloud://" + i.Region + "." + i.ID
	}
	return o.Name + "://" + i.ID
}
