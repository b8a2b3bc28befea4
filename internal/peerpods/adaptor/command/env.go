// SPDX-License-Identifier: Apache-2.0

package command

import "github.com/outrigger/outrigger/provider/plugin"

// Env returns the variables that the adaptor reads, those of providers left
// out. They are the keys that the ConfigMap peer-pods-cm may have.
func Env() []string {
	names := []string{"CLOUD_PROVIDER"}
	for _, s := range new(config).settings() {
		if s.env != "" {
			names = append(names, s.env)
		}
	}
	for _, v := range plugin.Env() {
		names = append(names, v.Name)
	}
	return names
}
