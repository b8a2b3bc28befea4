// SPDX-License-Identifier: Apache-2.0

// Command kubectl is a program of its own: the tests call it thousands of times, and
// with those of the control plane in it, each call would initialize their packages too.
package main

import (
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

func main() {
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
	}
}
