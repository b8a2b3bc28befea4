// SPDX-License-Identifier: Apache-2.0

// Package providerprogram is the main function of a provider that is a program of its own:
// a process plugin, or a server on a socket. It is installed as a file of the provider's
// name, since that is a plugin's.
package providerprogram

import (
	"os"

	"github.com/outrigger/outrigger/internal/version"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/serve"
)

// Main runs the registered provider of that name. It does not return.
func Main(name string) {
	os.Exit(serve.Run(serve.Options{Name: name, Version: version.Version, Cloud: provider.Get(name)}))
}
