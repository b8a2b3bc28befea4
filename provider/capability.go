// SPDX-License-Identifier: Apache-2.0

package provider

import "reflect"

// Capability names an optional capability of a [Provider]: an interface of this
// package that it may implement as well. The values are the interfaces' names, and on
// the wire of plugins.
type Capability string

// The capabilities, in the order of this package's documentation. Plugins do not say
// that they have the last three: ImageImport is of programs that bring images in, and
// calls to a plugin always have a context.
const (
	CapabilityList          Capability = "Lister"
	CapabilityGet           Capability = "Getter"
	CapabilityConsole       Capability = "ConsoleReader"
	CapabilityPower         Capability = "PowerController"
	CapabilityInstanceTypes Capability = "InstanceTypeLister"
	CapabilityNodeAddress   Capability = "NodeAddresser"
	CapabilityLoadBalancers Capability = "LoadBalancerController"
	CapabilityDisks         Capability = "DiskController"
	CapabilitySnapshots     Capability = "DiskSnapshotter"
	CapabilityImageImport   Capability = "ImageImporter"
	CapabilityVerifyContext Capability = "ContextVerifier"
	CapabilityCloseContext  Capability = "ContextCloser"
)

// Limited is implemented by providers that have the methods of more capabilities
// than they can use, because they stand for another provider: plugins,
// decorators. [As] asks them.
type Limited interface {
	// HasCapability reports whether the capability is there.
	HasCapability(Capability) bool
}

// As returns p as the optional capability T, such as [Lister], and whether p has
// it. It is a type assertion that also works through plugins and decorators.
func As[T any](p Provider) (T, bool) {
	capability, ok := p.(T)
	if limited, is := p.(Limited); ok && is && !limited.HasCapability(Capability(reflect.TypeFor[T]().Name())) {
		var none T
		return none, false
	}
	return capability, ok
}

// asked tell whether a provider has a capability.
var asked = map[Capability]func(Provider) bool{
	CapabilityList: has[Lister], CapabilityGet: has[Getter], CapabilityConsole: has[ConsoleReader], CapabilityPower: has[PowerController],
	CapabilityInstanceTypes: has[InstanceTypeLister], CapabilityNodeAddress: has[NodeAddresser], CapabilityLoadBalancers: has[LoadBalancerController],
	CapabilityDisks: has[DiskController], CapabilitySnapshots: has[DiskSnapshotter],
	CapabilityImageImport: has[ImageImporter], CapabilityVerifyContext: has[ContextVerifier], CapabilityCloseContext: has[ContextCloser],
}

func has[T any](p Provider) bool {
	_, ok := As[T](p)
	return ok
}

// Has reports whether p has a capability.
func Has(p Provider, c Capability) bool {
	ask, known := asked[c]
	return known && ask(p)
}

// Capabilities returns those that p has of the capabilities that plugins have, in
// the order of this package's documentation.
func Capabilities(p Provider) []Capability {
	var all []Capability
	for _, c := range []Capability{
		CapabilityList, CapabilityGet, CapabilityConsole, CapabilityPower, CapabilityInstanceTypes, CapabilityNodeAddress, CapabilityLoadBalancers,
		CapabilityDisks, CapabilitySnapshots,
	} {
		if Has(p, c) {
			all = append(all, c)
		}
	}
	return all
}
