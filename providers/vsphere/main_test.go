// SPDX-License-Identifier: Apache-2.0

package vsphere

import (
	"testing"

	"github.com/outrigger/outrigger/test/cloudsim"
)

func TestMain(m *testing.M) { cloudsim.Main(m) }
