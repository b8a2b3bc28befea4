// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
	"github.com/outrigger/outrigger/provider"
)

// apiServerPort is that of an endpoint that names only a host; kubeadm's.
const apiServerPort = 6443

// smallestSubnet has room for a gateway, a load balancer and some machines.
const smallestSubnet = 28

type cluster interface {
	ContractCluster() (*infrav1.ClusterSpec, *infrav1.ClusterStatus)
}

// endpointPort fills in the port of a [cluster]'s endpoint.
type endpointPort[T client.Object] struct{}

// Default sets defaults before an object is validated.
func (endpointPort[T]) Default(_ context.Context, c T) error {
	spec, _ := any(c).(cluster).ContractCluster()
	if e := &spec.ControlPlaneEndpoint; e.Host != "" && e.Port == 0 {
		e.Port = apiServerPort
	}
	return nil
}

func validEndpoint(e clusterv1.APIEndpoint, path *field.Path) field.ErrorList {
	path = path.Child("controlPlaneEndpoint", "host")
	if e.Host == "" || net.ParseIP(e.Host) != nil {
		return nil
	}
	var errs field.ErrorList
	for _, problem := range validation.IsDNS1123Subdomain(e.Host) {
		errs = append(errs, field.Invalid(path, e.Host, "is neither an address nor a name: "+problem))
	}
	return errs
}

func fixedEndpoint(before, after clusterv1.APIEndpoint, path *field.Path) (errs field.ErrorList) {
	const why = "the certificates and kubeconfigs of the cluster are for it"
	path = path.Child("controlPlaneEndpoint")
	if before.Host != "" && before.Host != after.Host {
		errs = append(errs, fixedField(path.Child("host"), after.Host, why)...)
	}
	if before.Port != 0 && before.Port != after.Port {
		errs = append(errs, fixedField(path.Child("port"), after.Port, why)...)
	}
	return errs
}

func validDockerCluster(s *infrav1.DockerClusterSpec, path *field.Path, _ bool) (admission.Warnings, field.ErrorList) {
	errs := validEndpoint(s.ControlPlaneEndpoint, path)
	errs = append(errs, validImage(s.LoadbalancerImage, path.Child("loadbalancerImage"))...)
	errs = append(errs, validLoadBalancer(s.LoadBalancer, path.Child("loadBalancer"))...)
	errs = append(errs, validSubnet(s.Subnet, path.Child("subnet"))...)
	return nil, errs
}

func validLoadBalancer(l infrav1.DockerLoadBalancer, path *field.Path) (errs field.ErrorList) {
	if l.ImageRepository != "" && len(validImage(strings.TrimSuffix(l.ImageRepository, "/")+"/haproxy", path)) > 0 {
		errs = append(errs, field.Invalid(path.Child("imageRepository"), l.ImageRepository, "is not a registry and a folder in it, such as registry.example.com/images"))
	}
	if l.ImageTag != "" && len(validImage("haproxy:"+l.ImageTag, path)) > 0 {
		errs = append(errs, field.Invalid(path.Child("imageTag"), l.ImageTag, "is not a tag of an image"))
	}
	if l.CustomHAProxyConfigTemplateRef.Name != "" && l.ImageRepository == "" && l.ImageTag == "" {
		errs = append(errs, field.Required(path.Child("imageRepository"), "customHAProxyConfigTemplateRef is for an image of HAProxy, which the default load balancer is not: name it with imageRepository and imageTag"))
	}
	return errs
}

func validSubnet(subnet string, path *field.Path) field.ErrorList {
	if subnet == "" {
		return nil
	}
	p, err := netip.ParsePrefix(subnet)
	if err != nil || !p.Addr().Is4() {
		return field.ErrorList{field.Invalid(path, subnet, "is not an IPv4 range such as 172.30.0.0/24")}
	}
	if p != p.Masked() {
		return field.ErrorList{field.Invalid(path, subnet, "has bits behind the prefix: write "+p.Masked().String())}
	}
	if p.Bits() > smallestSubnet {
		return field.ErrorList{field.Invalid(path, subnet, "has no room for a cluster: the prefix is to be /28 or shorter")}
	}
	return nil
}

func fixedDockerCluster(before, after *infrav1.DockerClusterSpec, path *field.Path) field.ErrorList {
	errs := fixedEndpoint(before.ControlPlaneEndpoint, after.ControlPlaneEndpoint, path)
	if before.Subnet != after.Subnet {
		errs = append(errs, field.Forbidden(path.Child("subnet"), "cannot change: the addresses of the machines are in it"))
	}
	if before.DisableLoadBalancer != after.DisableLoadBalancer {
		errs = append(errs, field.Forbidden(path.Child("disableLoadBalancer"), "cannot change: the endpoint of the control plane depends on it"))
	}
	return errs
}

func validOutriggerCluster(s *infrav1.OutriggerClusterSpec, path *field.Path, _ bool) (admission.Warnings, field.ErrorList) {
	return nil, validEndpoint(s.ControlPlaneEndpoint, path)
}

func fixedOutriggerCluster(before, after *infrav1.OutriggerClusterSpec, path *field.Path) field.ErrorList {
	return fixedEndpoint(before.ControlPlaneEndpoint, after.ControlPlaneEndpoint, path)
}

// fixedProvider: the machines of a cluster are at its provider. One that was provisioned at
// the manager's default may say so.
func fixedProvider(before, after *infrav1.OutriggerCluster) field.ErrorList {
	was := cmp.Or(before.Spec.Provider, before.Annotations[infrav1.ProviderAnnotation])
	is := cmp.Or(after.Spec.Provider, before.Annotations[infrav1.ProviderAnnotation])
	if !before.Status.Ready || before.Spec.Provider == after.Spec.Provider || provider.Canonical(is) == provider.Canonical(was) {
		return nil
	}
	at := "the machines of the cluster are at the default of the manager that provisioned it"
	if was != "" {
		at = "the machines of the cluster are at " + was
	}
	return field.ErrorList{field.Invalid(spec.Child("provider"), after.Spec.Provider, "cannot change once the cluster is provisioned: "+at+"; make another cluster")}
}
