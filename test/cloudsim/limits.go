// SPDX-License-Identifier: Apache-2.0

package cloudsim

import (
	"time"

	"github.com/outrigger/outrigger/provider/conformance"
)

// Limits are for the conformance of a provider on a simulator: they only end
// what hangs, and leave the rest time on a machine that does much else.
var Limits = conformance.Limits{Call: 3 * time.Minute, Soon: time.Minute, Settle: 2 * time.Minute}
