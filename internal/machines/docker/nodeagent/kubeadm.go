// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"path"
	"regexp"
	"slices"
	"strings"
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

// leaveConntrack keeps kube-proxy from setting the size of the table of connections: it is the
// host's, and no container may. kubeadm's configuration may say otherwise.
const leaveConntrack = `---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
conntrack: {maxPerCore: 0, min: 0}
`

// leaveOutConntrack adds that to a file of kubeadm's configuration.
func (p *Plan) leaveOutConntrack() {
	for i, f := range p.Files {
		text := string(f.Content)
		if strings.Contains(text, "\nkind: ClusterConfiguration\n") && !strings.Contains(text, "kind: KubeProxyConfiguration") {
			p.Files[i].Content = []byte(strings.TrimSuffix(text, "\n") + "\n" + leaveConntrack)
		}
	}
}
