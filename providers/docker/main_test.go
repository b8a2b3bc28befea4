// SPDX-License-Identifier: Apache-2.0

//go:build !integration

package docker

import (
	"testing"

	"github.com/outrigger/outrigger/test/cloudsim"
)

func TestMain(m *testing.M) { cloudsim.Main(m) }
