// SPDX-License-Identifier: Apache-2.0

//go:build integration

package aws

import (
	"os"
	"testing"

	"github.com/outrigger/outrigger/test/cloudsim"
	"github.com/outrigger/outrigger/test/testns"
)

// TestMain runs the tests in a network of their own, which has the metadata
// service's address.
func TestMain(m *testing.M) {
	os.Exit(testns.Run(func() int {
		cloudsim.Main(m) // which exits
		return 0
	}))
}
