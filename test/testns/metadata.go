// SPDX-License-Identifier: Apache-2.0

package testns

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// MetadataMain is Main for tests that serve the clouds' metadata services: the
// loopback interface of their namespace has the real addresses, and
// metadata.google.internal is one of them. Outside such a namespace nothing is
// ever sent there.
func MetadataMain(m *testing.M) {
	os.Exit(Run(func() int {
		if Inside() {
			if err := takeMetadataAddresses(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
		}
		return m.Run()
	}))
}

// hosts is a file in the namespace's own /run.
const hosts = "/run/testns-hosts"

func takeMetadataAddresses() error {
	if err := os.WriteFile(hosts, []byte("127.0.0.1 localhost\n169.254.169.254 metadata.google.internal\n"), 0o600); err != nil {
		return err
	}
	for _, line := range []string{
		"ip link set lo up", "ip addr add 169.254.169.254/32 dev lo", "ip addr add 100.100.100.200/32 dev lo",
		"mount --bind " + hosts + " /etc/hosts",
	} {
		words := strings.Fields(line)
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", line, err, out)
		}
	}
	return nil
}
