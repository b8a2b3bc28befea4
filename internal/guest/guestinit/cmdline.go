// SPDX-License-Identifier: Apache-2.0

package guestinit

import "strings"

// cmdline is the kernel command line; a word without = has the value "".
type cmdline map[string]string

func parseCmdline(text string) cmdline {
	args := cmdline{}
	for _, w := range strings.Fields(text) {
		k, v, _ := strings.Cut(w, "=")
		args[k] = v
	}
	return args
}

func (c cmdline) has(word string) bool {
	_, ok := c[word]
	return ok
}
