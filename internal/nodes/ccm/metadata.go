// SPDX-License-Identifier: Apache-2.0

package ccm

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/api"
	"k8s.io/cloud-provider/node/helpers"

	"github.com/outrigger/outrigger/provider"
)

// InstanceMetadata returns what a Node's instance is. The error is also an Event of
// the Node when that waits to be initialized.
func (c *Cloud) InstanceMetadata(ctx context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	metadata, err := c.metadata(ctx, node)
	waits := uninitialized(node)
	switch {
	case err == nil:
		c.forget(node)
		return metadata, nil
	case reasonOf(err) == ReasonForeign && !waits:
		// It has been initialized by the manager of its own cloud.
		return &cloudprovider.InstanceMetadata{ProviderID: node.Spec.ProviderID}, nil
	case waits:
		c.failed(node, err)
		if reasonOf(err) == ReasonForeign {
			return nil, nil // the controller leaves it alone
		}
	}
	return nil, err
}

func (c *Cloud) metadata(ctx context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	i, err := c.find(ctx, node)
	if err != nil {
		return nil, err
	}
	c.fleet.learn(i)
	all := addresses(i)
	if len(all) == 0 {
		return nil, problem{ReasonNoAddresses, fmt.Errorf("instance %s has no address yet", i.ID)}
	}
	if ip, given := node.Annotations[api.AnnotationAlphaProvidedIPAddr]; given {
		if all, err = helpers.GetNodeAddressesFromNodeIP(ip, all); err != nil {
			return nil, problem{ReasonNodeIP, fmt.Errorf("the kubelet's --node-ip %s is none of the addresses %v of instance %s: %w", ip, i.IPs, i.ID, err)}
		}
	}
	id := node.Spec.ProviderID // is never changed
	if id == "" {
		id = c.options.providerID(i)
	}
	return &cloudprovider.InstanceMetadata{
		ProviderID: id, InstanceType: labelValue(i.Type), Zone: labelValue(i.Zone), Region: labelValue(i.Region),
		NodeAddresses: all, AdditionalLabels: c.labels(i),
	}, nil
}

// addresses of an instance. The host's name stays the one the kubelet gave.
func addresses(i *provider.Instance) []v1.NodeAddress {
	var all []v1.NodeAddress
	for _, ip := range i.IPs {
		kind := v1.NodeInternalIP
		if ip.IsGlobalUnicast() && !ip.IsPrivate() {
			kind = v1.NodeExternalIP
		}
		all = append(all, v1.NodeAddress{Type: kind, Address: ip.String()})
	}
	return all
}

// labels returns the configured labels of an instance, from its tags. Missing tags
// give no label.
func (c *Cloud) labels(i *provider.Instance) map[string]string {
	all := map[string]string{}
	maps.Copy(all, c.options.Labels)
	for tag, label := range c.options.LabelsFromTags {
		if value, ok := i.Tags[tag]; ok {
			all[label] = labelValue(value)
		}
	}
	return all
}

var noLabel = regexp.MustCompile(`[^A-Za-z0-9_.-]`)

// labelValue returns a text as the value of a label. The API server would refuse
// the whole Node for an invalid one.
func labelValue(text string) string {
	text = noLabel.ReplaceAllString(text, "-")
	return strings.Trim(text[:min(len(text), validation.LabelValueMaxLength)], "-_.")
}

// checkLabels refuses labels that the API server would, and those that the
// controllers drop silently.
func checkLabels(o Options) error {
	for key, value := range o.Labels {
		if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
			return fmt.Errorf("%w: --node-labels: %s=%s: %s", provider.ErrInvalidArgument, key, value, strings.Join(problems, "; "))
		}
		if err := checkLabel("--node-labels", key); err != nil {
			return err
		}
	}
	for _, label := range o.LabelsFromTags {
		if err := checkLabel("--node-labels-from-tags", label); err != nil {
			return err
		}
	}
	return nil
}

func checkLabel(flag, key string) error {
	if problems := validation.IsQualifiedName(key); len(problems) > 0 {
		return fmt.Errorf("%w: %s: label %q: %s", provider.ErrInvalidArgument, flag, key, strings.Join(problems, "; "))
	}
	domain, _, _ := strings.Cut(key, "/")
	for _, reserved := range []string{"kubernetes.io", "k8s.io"} {
		if domain == reserved || strings.HasSuffix(domain, "."+reserved) {
			return fmt.Errorf("%w: %s: label %q: a cloud may set none of %s", provider.ErrInvalidArgument, flag, key, reserved)
		}
	}
	return nil
}
