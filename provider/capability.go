// SPDX-License-Identifier: Apache-2.0

package provider

// Capability names an optional capability of a [Provider]: an interface of this
// package that it may implement as well. The values are on the wire of plugins.
type Capability string

// The capabilities, in the order of this package's documentation. ImageImport is
// of programs that bring images in; plugins do not say that they have it.
const (
	CapabilityList          Capability = "Lister"
	CapabilityGet           Capability = "Getter"
	CapabilityConsole       Capability = "ConsoleReader"
	CapabilityPower         Capability = "PowerController"
	CapabilityInstanceTypes Capability = "InstanceTypeLister"
	CapabilityNodeAddress   Capability = "NodeAddresser"
	CapabilityLoadBalancers Capability = "LoadBalancerController"
	CapabilityImageImport   Capability = "ImageImporter"
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
	if limited, is := p.(Limited); ok && is && !limited.HasCapability(capabilityOf[T]()) {
		var none T
		return none, false
	}
	return capability, ok
}

// capabilityOf returns the capability that the interface T is, or "" for one of
// another package.
func capabilityOf[T any]() Capability {
	switch any((*T)(nil)).(type) {
	case *Lister:
		return CapabilityList
	case *Getter:
		return CapabilityGet
	case *ConsoleReader:
		return CapabilityConsole
	case *PowerController:
		return CapabilityPower
	case *InstanceTypeLister:
		return CapabilityInstanceTypes
	case *NodeAddresser:
		return CapabilityNodeAddress
	case *LoadBalancerController:
		return CapabilityLoadBalancers
	case *ImageImporter:
		return CapabilityImageImport
	}
	return ""
}

// Capabilities returns those that p has of the capabilities that plugins have, in
// the order of this package's documentation.
func Capabilities(p Provider) []Capability {
	var all []Capability
	add := func(c Capability, has bool) {
		if has {
			all = append(all, c)
		}
	}
	add(capability[Lister](p))
	add(capability[Getter](p))
	add(capability[ConsoleReader](p))
	add(capability[PowerController](p))
	add(capability[InstanceTypeLister](p))
	add(capability[NodeAddresser](p))
	add(capability[LoadBalancerController](p))
	return all
}

func capability[T any](p Provider) (Capability, bool) {
	_, has := As[T](p)
	return capabilityOf[T](), has
}
