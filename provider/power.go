// SPDX-License-Identifier: Apache-2.0

package provider

import "reflect"

// Limited is implemented by providers that have the methods of more powers
// than they can use, because they stand for another provider: plugins,
// decorators. [As] asks them.
type Limited interface {
	// HasPower says whether the power of that name, such as "Lister", is
	// there.
	HasPower(name string) bool
}

// As answers p as the optional power T, such as [Lister], and whether p has
// it. It is a type assertion that also works through plugins and decorators.
func As[T any](p Provider) (T, bool) {
	power, ok := p.(T)
	if limited, is := p.(Limited); ok && is && !limited.HasPower(reflect.TypeFor[T]().Name()) {
		var none T
		return none, false
	}
	return power, ok
}

// Powers answers the names of the optional powers that p has, in the order of
// this package's documentation.
func Powers(p Provider) []string {
	var names []string
	add := func(name string, has bool) {
		if has {
			names = append(names, name)
		}
	}
	add(power[Lister](p))
	add(power[Getter](p))
	add(power[ConsoleReader](p))
	add(power[PowerController](p))
	add(power[InstanceTypeLister](p))
	add(power[NodeAddresser](p))
	add(power[LoadBalancerController](p))
	return names
}

func power[T any](p Provider) (string, bool) {
	_, has := As[T](p)
	return reflect.TypeFor[T]().Name(), has
}
