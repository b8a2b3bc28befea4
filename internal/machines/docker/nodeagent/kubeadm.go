// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"path"
	"regexp"
	"slices"
)

// unfit are checks of kubeadm that fail in a container and say nothing about it: the
// kernel's configuration cannot be read there, swap and the settings of bridges are the
// host's.
const unfit = "--ignore-preflight-errors=SystemVerification,Swap,FileContent--proc-sys-net-bridge-bridge-nf-call-iptables"

// kubeadmCall is one in a script.
var kubeadmCall = regexp.MustCompile(`(^|[\s;&|(/])kubeadm\s+(init|join)\b`)

// leaveOutUnfit has kubeadm leave out what is unfit, wherever a command calls it.
// kubeadm adds what its configuration leaves out.
func (p *Plan) leaveOutUnfit() {
	for i, argv := range p.Commands {
		switch {
		case len(argv) > 1 && path.Base(argv[0]) == "kubeadm" && (argv[1] == "init" || argv[1] == "join"):
			p.Commands[i] = slices.Insert(slices.Clone(argv), 2, unfit)
		case len(argv) == 3 && argv[0] == "/bin/sh" && argv[1] == "-c":
			p.Commands[i] = []string{argv[0], argv[1], kubeadmCall.ReplaceAllString(argv[2], "${1}kubeadm $2 "+unfit)}
		}
	}
}
