// SPDX-License-Identifier: Apache-2.0

// Command process-user-data runs once at the boot of a pod VM: it fetches
// user-data and writes the files that the other programs read. On vSphere it
// also tells the VM's addresses, on Azure that it is ready, which nobody else there does.
package main

import "github.com/outrigger/outrigger/internal/guest/metadata"

func main() { metadata.Main() }
