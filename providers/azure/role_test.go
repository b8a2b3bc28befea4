// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"testing"

	azuresim "github.com/outrigger/outrigger/test/cloudsim/azure"
)

func checkRole(t testing.TB, cloud *azuresim.Cloud) {}
