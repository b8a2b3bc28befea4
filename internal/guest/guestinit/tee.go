// SPDX-License-Identifier: Apache-2.0

package guestinit

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// configfsMount is where the attester asks the kernel for the processor's reports.
const configfsMount = "/sys/kernel/config"

// teeDevices show a TEE: that of SEV-SNP is there in such a VM alone, and TDX is one of the features of the processors.
var teeDevices = []string{"/sys/bus/platform/devices/sev-guest", "/sys/devices/system/cpu"}

// findTEE lets the attester ask the processor for reports. In a VM that is not confidential, or an image without the
// drivers, it does nothing.
func (g *guest) findTEE() error {
	aliases, err := os.ReadFile(modulesAliases)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range driversOf(string(aliases), modaliases(teeDevices)) {
		if err := g.modules.loadNamed(name); err != nil {
			errs = append(errs, err)
			continue
		}
		g.con.logf("loaded %s: the processor vouches for this VM", name)
	}
	return errors.Join(append(errs, mountConfigfs())...)
}

// mountConfigfs mounts configfs if the kernel has it; the folder is configfs' own.
func mountConfigfs() error {
	if _, err := os.Stat(configfsMount); err != nil {
		return nil
	}
	return mount{"configfs", configfsMount, "configfs", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""}.mount()
}
