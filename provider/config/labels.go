// SPDX-License-Identifier: Apache-2.0

package config

import "github.com/outrigger/outrigger/provider"

// Labelled is a [provider.CloudProvider] with settings that may come from the
// labels of the node. Those that [New] makes are, and so are those of plugins.
type Labelled interface {
	// WantedLabels returns the labels of the settings that are not set.
	WantedLabels() []string
	// LoadLabels fills what is not set from the labels of a node. It is called
	// after LoadEnv or Set, and before NewProvider, which reports a label whose
	// value is wrong.
	LoadLabels(labels map[string]string)
}

// FromNode fills what is not set from the labels of a node. It does not read them
// when no setting wants any.
func FromNode(cloud provider.CloudProvider, read func(wanted []string) (map[string]string, error)) error {
	labelled, ok := cloud.(Labelled)
	if !ok {
		return nil
	}
	wanted := labelled.WantedLabels()
	if len(wanted) == 0 {
		return nil
	}
	labels, err := read(wanted)
	if err == nil {
		labelled.LoadLabels(labels)
	}
	return err
}

// Labels returns the labels of a setting of C, by its flag or its variable.
func Labels[C any](name string) []string { return fieldNamed[C](name).Labels }

// WantedLabels implements [Labelled].
func (b *Binder) WantedLabels() []string {
	var wanted []string
	for _, field := range b.schema.Fields {
		if b.unset(field) {
			wanted = append(wanted, field.Labels...)
		}
	}
	return wanted
}

// LoadLabels implements [Labelled].
func (b *Binder) LoadLabels(labels map[string]string) {
	for _, field := range b.schema.Fields {
		for _, label := range field.Labels {
			text := labels[label]
			if text == "" || !b.unset(field) {
				continue
			}
			if err := field.Check(text); err != nil {
				b.wrong[field.Name] = field.bad("the node's label %s: %v", label, err)
				break
			}
			b.given[field.Name] = text
		}
	}
}

// unset says that there is neither a value nor a wrong one.
func (b *Binder) unset(field Field) bool {
	return b.given[field.Name] == "" && b.wrong[field.Name] == nil
}
