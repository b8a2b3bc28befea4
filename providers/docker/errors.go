// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"fmt"

	"github.com/outrigger/outrigger/internal/dockerengine"
	"github.com/outrigger/outrigger/provider"
)

// classify puts an error of the engine into its class.
func classify(err error) error {
	if err == nil || provider.Class(err) != provider.ErrUnknown {
		return err
	}
	return fmt.Errorf("%w: %w", dockerengine.Class(err), err)
}
