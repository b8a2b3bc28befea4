// SPDX-License-Identifier: Apache-2.0

// Package byom hands pods machines of a fixed pool: VMs or metal that somebody
// else has set up, reached by SSH.
//
// Who has which machine is in one ConfigMap, which all nodes share. Every
// change is made by compare-and-swap on its resourceVersion: who decided from
// an older version decides again, so no machine is given away twice.
//
// A machine is claimed, gets its user-data by SFTP, and is the pod's until its
// instance is deleted. Then it is told to reboot, and is free again only when it
// has proved that it did: the boot id that it serves has changed, and the
// user-data is gone.
package byom
