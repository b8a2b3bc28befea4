// SPDX-License-Identifier: Apache-2.0

// Package userdata generates the user-data of an instance as the contract wants
// it: once, and refused as the caller's when that fails.
package userdata

import (
	"fmt"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
)

// Generate returns what g generates, and "" where g is nil. Its errors are
// [provider.ErrInvalidArgument] and wrap those of g. How much of it a cloud takes,
// and in which encoding, is the provider's to check.
func Generate(g cloudinit.CloudConfigGenerator) (string, error) {
	if g == nil {
		return "", nil
	}
	text, err := g.Generate()
	if err != nil {
		return "", fmt.Errorf("%w: generate user-data: %w", provider.ErrInvalidArgument, err)
	}
	return text, nil
}
