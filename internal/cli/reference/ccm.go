// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"

	"github.com/outrigger/outrigger/internal/nodes/ccm/command"
)

const ccmIntroduction = `# cloud-controller-manager

Tells a cluster what its Nodes are in the cloud of any provider: see [Nodes and their
instances](../ccm.md). The settings of the provider are its variables: see
[providers](providers/). They, and those below, can also be in the file of
` + "`--cloud-config`" + `, as lines VARIABLE=VALUE. A flag wins over the file, the file over the
environment.

Besides the flags below it takes those of every cloud controller manager of
Kubernetes 1.36, which ` + "`cloud-controller-manager --help`" + ` lists. Of these some have other
defaults here:

| flag | default elsewhere | default here |
|---|---|---|
`

func ccmPage(w io.Writer) {
	fmt.Fprint(w, generated, ccmIntroduction)
	for _, f := range command.OtherDefaults() {
		fmt.Fprintf(w, "| `--%s` | %s | %s |\n", f[0], quote(f[1]), quote(f[2]))
	}
	command.Settings().WriteMarkdown(w)
}
