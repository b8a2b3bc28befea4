// SPDX-License-Identifier: Apache-2.0

package provider

import "reflect"

// Limited is implemented by providers that have the methods of more capabilities
// than they can use, because they stand for another provider: plugins,
// decorators. [As] asks them.
type Limited interface {
	// HasCapability reports whether the capability of that name, such as "Lister", is
	// there.
	HasCapability(name string) bool
}

// As returns p as the optional capability T, such as [Lister], and whether p has
// it. It is a type assertion that also works through plugins and decorators.
func As[T any](p Provider) (T, bool) {
	capability, ok := p.(T)
	if limited, is := p.(Limited); ok && is && !limited.HasCapability(reflect.TypeFor[T]().Name()) {
		var none T
		return none, false
	}
	return capability, ok
}

// Capabilities returns the names of the optional capabilities that p has, in the order of
// this package's documentation.
func Capabilities(p Provider) []string {
	var names []string
	add := func(name string, has bool) {
		if has {
			names = append(names, name)
		}
	}
	add(capability[Lister](p))
	add(capability[Getter](p))
	add(capability[ConsoleReader](p))
	add(capability[PowerController](p))
	add(capability[InstanceTypeLister](p))
	add(capability[NodeAddresser](p))
	add(capability[LoadBalancerController](p))
	return names
}

func capability[T any](p Provider) (string, bool) {
	_, has := As[T](p)
	return reflect.TypeFor[T]().Name(), has
}
