// SPDX-License-Identifier: Apache-2.0

//go:build !integration

package deploy

import (
	"os"
	"testing"

	"github.com/outrigger/outrigger/test/cloudsim"
)

func TestMain(m *testing.M) {
	os.Setenv("OUTRIGGER_CACHE", cacheFolder()) // the home folder is another from now on
	cloudsim.Main(m)
}
