// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"testing"

	azuresim "github.com/outrigger/outrigger/test/cloudsim/azure"
)

func TestCreateAndDelete(t *testing.T) {
	s := newStand(t, azuresim.Options{})
	i := s.mustCreate("key-1")
	t.Logf("%+v", i)
	s.mustDelete(i.ID)
	s.wantNothing()
}
