// SPDX-License-Identifier: Apache-2.0

// Agnhost is what Kubernetes' storage suite uses of the image of that name.
package main

import (
	"os"

	"github.com/spf13/cobra"
	"k8s.io/kubernetes/test/images/agnhost/mounttest"
	"k8s.io/kubernetes/test/images/agnhost/pause"
)

func main() {
	root := &cobra.Command{Use: "agnhost"}
	root.AddCommand(mounttest.CmdMounttest, pause.CmdPause)
	if root.Execute() != nil {
		os.Exit(1)
	}
}
